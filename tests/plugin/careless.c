/* Right kernels with one carelessness, chosen when it is compiled: FAULT=NAME, after the clause of
 * its op's contract that it forgets. Most of them do not show on ordinary calls. */
#define attnscope_lane right_lane
#include "assets/plugin/my_kernels.c"
#undef attnscope_lane

#define HOLES 1
#define BEHIND_LENS 2
#define DUPLICATES 3
#define NOTHING_LISTED 4
#define LARGE_LOGITS 5
#define SINKS 6
#define EVERY_CODE 7
#define SMALL_SCALES 8
#define STRIDES 9
#define NAN_NEIGHBOURS 10
#define ALONE 11
#define POISON 12
#define TWICE 13
#define TIES 14
#define SCORES_BEHIND 15
#define NOTHING_WRITTEN 16
#define PAGE_ENDS 17
#define FAR_LSE 18
#define UNLISTED_NAN 19
#define SUBNORMALS 20
#define HIGH_BLOCKS 21
#define PADS_LEFT 22
#define NEGATIVE_TARGETS 23

/* ---- sparse_attention */

/* A list and its lengths as the careless one reads them, in memory of its own. */
static void misread(as_tensor* list, as_tensor* lens) {
  const as_tensor given = *list, given_lens = *lens;
  const int64_t tokens = given.shape[0], width = given.shape[1];
  int32_t* copy = (int32_t*)malloc((size_t)(tokens * (width + 1)) * sizeof(int32_t));
  int64_t t, k;
  list->data = copy;
  list->stride[0] = width;
  lens->data = copy + tokens * width;
  lens->stride[0] = 1;
  for (t = 0; t < tokens; ++t) {
    int32_t* entries = copy + t * width;
    int32_t len = i32_at(&given_lens, t, 0);
    for (k = 0; k < width; ++k) entries[k] = i32_at(&given, t, k);
#if FAULT == BEHIND_LENS
    len = (int32_t)width; /* -1 alone ends a list, it thinks */
#elif FAULT == PAGE_ENDS
    if (len == 64) len = 63;
#endif
    for (k = 0; k < len; ++k) {
#if FAULT == HOLES
      if (entries[k] < 0) len = (int32_t)k;
#elif FAULT == DUPLICATES
      if (k > 0 && entries[k] == entries[k - 1]) entries[k - 1] = -1;
#endif
    }
    copy[tokens * width + t] = len;
  }
}

#if FAULT == EVERY_CODE || FAULT == SMALL_SCALES || FAULT == SUBNORMALS
/* A copy of a cache whose listed rows are decoded wrongly. */
static void misdecode(as_cache* cache, const as_tensor* list, const as_tensor* lens) {
  const size_t bytes = (size_t)(cache->data.shape[0] * cache->data.stride[0]);
  int64_t t, k, i;
  void* copy = malloc(bytes);
  memcpy(copy, cache->data.data, bytes);
  cache->data.data = copy;
  for (t = 0; t < list->shape[0]; ++t) {
    for (k = 0; k < i32_at(lens, t, 0); ++k) {
      as_row_address row;
      if (i32_at(list, t, k) < 0) continue;
      row = as_cache_row(cache, i32_at(list, t, k));
#if FAULT == EVERY_CODE
      for (i = 0; i < AS_NOPE_DIM; ++i) {
        unsigned char* code = (unsigned char*)(uintptr_t)row.payload + i;
        if ((*code & 0x7f) == 0x7e) *code = (unsigned char)(*code - 16); /* 448 is NaN, almost */
      }
#elif FAULT == SUBNORMALS
      for (i = 0; i < AS_NOPE_DIM; ++i) {
        unsigned char* code = (unsigned char*)(uintptr_t)row.payload + i;
        if ((*code & 0x78) == 0) *code = (unsigned char)(*code & 0x80);
      }
#else
      for (i = 0; i < AS_NOPE_DIM / AS_QUANT_BLOCK; ++i) {
        unsigned char* scale = (unsigned char*)(uintptr_t)row.scales + i;
        if (*scale == 0) *scale = 254; /* 2^-127 wraps */
      }
#endif
    }
  }
}
#endif

static void spoil(const as_sparse_attention_params* p, int64_t t, int64_t h, float before) {
  float* lse = (float*)p->lse.data + t * p->lse.stride[0] + h * p->lse.stride[1];
  static int calls = 0;
  if (t == 0 && h == 0) ++calls;
  (void)before;
  (void)lse;
#if FAULT == NOTHING_LISTED
  if (*lse == INFINITY) *lse = -INFINITY;
#elif FAULT == LARGE_LOGITS
  if (*lse > 88.7f && *lse < INFINITY) *lse = INFINITY; /* as a sum of e^x in fp32 */
#elif FAULT == FAR_LSE
  if (*lse < -800 && *lse > -INFINITY) *lse = -INFINITY; /* e^-800 is 0 */
#elif FAULT == UNLISTED_NAN
  {
    /* Weight 0, it thinks, does away with any row. */
    int64_t k;
    for (k = i32_at(&p->topk_length, t, 0); k < p->indices.shape[1]; ++k) {
      const int32_t slot = i32_at(&p->indices, t, k);
      if (slot >= p->cache.rows_per_block &&
          (as_cache_row(&p->cache, slot).payload[0] & 0x7f) == 0x7f) {
        *lse = NAN;
      }
    }
  }
#elif FAULT == SINKS
  if (((const float*)p->sinks.data)[h * p->sinks.stride[0]] == INFINITY) {
    *bf16_at(&p->o, t, h, 0) = 0x7fc0;
  }
#elif FAULT == NAN_NEIGHBOURS
  *lse += 0 * from_bf16(*bf16_at(&p->q, p->q.shape[0] - 1, h, 0));
#elif FAULT == ALONE
  if (p->q.shape[0] == 1 && i32_at(&p->topk_length, 0, 0) / 4 == 9) *lse += 1; /* 36 to 39 */
#elif FAULT == POISON
  /* Somebody has been here, it thinks, and leaves what there is. */
  if (!isnan(before)) *lse = before;
#elif FAULT == TWICE
  if (calls % 2 == 1) *lse = nextafterf(*lse, 1e30f);
#endif
}

static int32_t careless_attention(const void* params, const as_call* call, as_error* err) {
  const as_sparse_attention_params* given = (const as_sparse_attention_params*)params;
  as_sparse_attention_params p = *given;
  const int64_t tokens = p.q.shape[0], heads = p.q.shape[1];
  float* before = (float*)malloc((size_t)(tokens * heads) * sizeof(float));
  int64_t t, h;
  int32_t status;
  for (t = 0; t < tokens; ++t) {
    for (h = 0; h < heads; ++h) {
      before[t * heads + h] = ((float*)p.lse.data)[t * p.lse.stride[0] + h * p.lse.stride[1]];
    }
  }
  misread(&p.indices, &p.topk_length);
#if FAULT == EVERY_CODE || FAULT == SMALL_SCALES || FAULT == SUBNORMALS
  misdecode(&p.cache, &p.indices, &p.topk_length);
#elif FAULT == HIGH_BLOCKS
  /* As if byte offsets had 32 bits. */
  if (p.cache.data.shape[0] * p.cache.data.stride[0] > (int64_t)1 << 32) {
    p.cache.data.data = (char*)p.cache.data.data - ((int64_t)1 << 32);
  }
#elif FAULT == STRIDES
  p.q.stride[0] = heads * p.q.shape[2];
#endif
  status = sparse_attention(&p, call, err);
  for (t = 0; t < tokens; ++t) {
    for (h = 0; h < heads; ++h) spoil(given, t, h, before[t * heads + h]);
  }
  free(p.indices.data);
#if FAULT == EVERY_CODE || FAULT == SMALL_SCALES || FAULT == SUBNORMALS
  free(p.cache.data.data);
#endif
  free(before);
  return status;
}

/* ---- indexer_topk: the best entry again and again, then in ascending order */

static int better(float a, float b) {
  if (isnan(a)) return 0;
#if FAULT == TIES
  return isnan(b) || a >= b;
#else
  return isnan(b) || a > b;
#endif
}

static int32_t select_best(const void* params, const as_call* call, as_error* err) {
  const as_indexer_topk_params* p = (const as_indexer_topk_params*)params;
  const int64_t most = p->indices.shape[1];
  int64_t t, k, c;
  (void)call;
  (void)err;
  for (t = 0; t < p->logits.shape[0]; ++t) {
    const float* scores = (const float*)p->logits.data + t * p->logits.stride[0];
    int32_t* out = (int32_t*)p->indices.data + t * p->indices.stride[0];
    int64_t len = i32_at(&p->lens, t, 0), count;
    char* taken;
#if FAULT == SCORES_BEHIND
    len = p->logits.shape[1];
#endif
    taken = (char*)calloc((size_t)len + 1, 1);
    count = len < most ? len : most;
    for (k = 0; k < count; ++k) {
      int64_t best = -1;
      for (c = 0; c < len; ++c) {
        if (!taken[c] && (best < 0 || better(scores[c], scores[best]))) best = c;
      }
      if (best >= 0) taken[best] = 1;
    }
    for (c = 0, k = 0; c < len; ++c) {
      if (taken[c]) out[k++] = (int32_t)c;
    }
    while (k < most) out[k++] = -1;
    free(taken);
  }
  return AS_OK;
}

/* ---- compressor_state */

static int32_t save_state(const void* params, const as_call* call, as_error* err) {
  const as_compressor_state_params* p = (const as_compressor_state_params*)params;
  const int64_t half = p->proj.shape[1] / 2;
  int64_t t, c;
  (void)call;
  (void)err;
  for (t = 0; t < p->slots.shape[0]; ++t) {
    int64_t slot = ((int64_t*)p->slots.data)[t * p->slots.stride[0]];
    const int64_t position = ((int64_t*)p->positions.data)[t * p->positions.stride[0]];
    const float* from = (const float*)p->proj.data + t * p->proj.stride[0];
    const float* ape = (const float*)p->ape.data + position % p->ratio * p->ape.stride[0];
    float* to;
#if FAULT == NOTHING_WRITTEN
    if (slot < 0) slot = 0;
#endif
    if (slot < 0) continue;
    to = (float*)(void*)as_cache_row(&p->state, slot).payload;
    for (c = 0; c < 2 * half; ++c) to[c] = c < half ? from[c] : from[c] + ape[c - half];
  }
  return AS_OK;
}

/* ---- helper ops */

static int32_t pad(const void* params, const as_call* call, as_error* err) {
  const as_pad_rows_params* p = (const as_pad_rows_params*)params;
  int64_t r, c;
  (void)call;
  (void)err;
  for (r = 0; r < p->rows.shape[0]; ++r) {
    const int32_t* starts = (const int32_t*)p->starts.data + r * p->starts.stride[0];
    const int64_t count = starts[p->starts.stride[0]] - starts[0];
    int32_t* row = (int32_t*)p->rows.data + r * p->rows.stride[0];
    for (c = 0; c < p->rows.shape[1]; ++c) {
      if (c < count) {
        row[c] = ((const int32_t*)p->values.data)[(starts[0] + c) * p->values.stride[0]];
#if FAULT == PADS_LEFT
      } else if (p->pad == -1) { /* memory has been set to -1 before, it thinks */
#endif
      } else {
        row[c] = p->pad;
      }
    }
  }
  return AS_OK;
}

static int32_t copy_pairs(const void* params, const as_call* call, as_error* err) {
  const as_copy_blocks_params* p = (const as_copy_blocks_params*)params;
  int64_t n;
  (void)call;
  (void)err;
  for (n = 0; n < p->pairs.shape[0]; ++n) {
    const int64_t* pair = (const int64_t*)p->pairs.data + n * p->pairs.stride[0];
    int64_t target = pair[p->pairs.stride[1]];
#if FAULT == NEGATIVE_TARGETS
    if (target < 0) target += p->to.shape[0]; /* counted from the end */
#endif
    if (pair[0] < 0 || target < 0) continue;
    memcpy((char*)p->to.data + target * p->to.stride[0],
           (const char*)p->from.data + pair[0] * p->from.stride[0], (size_t)p->from.shape[1]);
  }
  return AS_OK;
}

static const as_lane_op careless_ops[] = {
    AS_LANE_OP(AS_OP_SPARSE_ATTENTION, as_sparse_attention_params, careless_attention),
    AS_LANE_OP(AS_OP_INDEXER_TOPK, as_indexer_topk_params, select_best),
    AS_LANE_OP(AS_OP_COMPRESSOR_STATE, as_compressor_state_params, save_state),
    AS_LANE_OP(AS_OP_PAD_ROWS, as_pad_rows_params, pad),
    AS_LANE_OP(AS_OP_COPY_BLOCKS, as_copy_blocks_params, copy_pairs)};

static const as_lane careless_lane = AS_LANE("careless", NULL, careless_ops);

AS_PLUGIN_EXPORT const as_lane* attnscope_lane(void) { return &careless_lane; }
