/* Two kernels of one's own for models of dense attention (tiny-llama and the like), in C99:
 * rope_kv_insert, which fills the pages of keys and values, and paged_attention, which reads them,
 * as plain as they can be written. For caches of bf16 rows. GUIDE.md says how to start from it.
 *
 *   cc -std=c99 -O2 -shared -fPIC -I include my_dense_kernels.c -o libmydense.so -lm
 *   attnscope run tiny-llama --plugin ./libmydense.so --lane plugin:mydense
 */
#include <attnscope_plugin.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static float wide(uint16_t bits) {
  const uint32_t shifted = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &shifted, sizeof(value));
  return value;
}

/* Round to nearest, ties to even; NaN stays NaN. */
static uint16_t narrow(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static uint16_t* at3(const as_tensor* t, int64_t i, int64_t j, int64_t k) {
  return (uint16_t*)t->data + i * t->stride[0] + j * t->stride[1] + k * t->stride[2];
}

static int32_t cannot(as_error* err, const char* message) {
  err->code = AS_BAD_INPUT;
  strncpy(err->message, message, sizeof(err->message) - 1);
  err->message[sizeof(err->message) - 1] = '\0';
  return AS_BAD_INPUT;
}

/* ---- rope_kv_insert: norm, rotation, and a row into each cache */

/* Head j of token t of x, normed where there is a weight and turned by the token's angles. */
static void make_head(const as_rope_kv_insert_params* p, const as_tensor* x,
                      const as_tensor* weight, int64_t t, int64_t j, uint16_t* out) {
  const int64_t size = x->shape[2];
  const int64_t turned = p->rope.table.data != NULL ? p->rope.table.shape[1] : 0;
  const int64_t half = turned / 2;
  const int64_t position = ((const int64_t*)p->positions.data)[t * p->positions.stride[0]];
  const float* row = (const float*)p->rope.table.data + position * p->rope.table.stride[0];
  float head[AS_MAX_HEAD_SIZE];
  int64_t d;
  for (d = 0; d < size; ++d) head[d] = wide(*at3(x, t, j, d));
  if (weight->data != NULL) {
    double squares = 0, factor;
    for (d = 0; d < size; ++d) squares += (double)head[d] * head[d];
    factor = 1 / sqrt(squares / (double)size + p->eps);
    for (d = 0; d < size; ++d) {
      const float w = wide(((const uint16_t*)weight->data)[d * weight->stride[0]]);
      head[d] = (float)(head[d] * factor * ((float)p->weight_plus_one + w));
    }
  }
  for (d = 0; d < half; ++d) {
    const int64_t a = p->style == AS_ROPE_GPTJ ? 2 * d : d;
    const int64_t b = p->style == AS_ROPE_GPTJ ? 2 * d + 1 : d + half;
    const float first = head[a], second = head[b];
    head[a] = first * row[d] - second * row[half + d];
    head[b] = second * row[d] + first * row[half + d];
  }
  for (d = 0; d < size; ++d) out[d] = narrow(head[d]);
}

static int32_t rope_kv_insert(const void* params, const as_call* call, as_error* err) {
  const as_rope_kv_insert_params* p = (const as_rope_kv_insert_params*)params;
  const as_tensor* keys = p->rows_given != 0 ? &p->k_row : &p->k;
  const int64_t heads = keys->shape[1], size = keys->shape[2], size_v = p->v.shape[2];
  uint16_t key_row[AS_MAX_HEAD_SIZE], *row;
  int64_t t, j, d;
  (void)call;
  if (p->head.version != AS_PARAMS_VERSION || p->head.struct_size < sizeof(*p)) {
    return cannot(err, "rope_kv_insert: params of another version");
  }
  if (p->k_cache.record != AS_RECORD_BF16 || p->v_cache.record != AS_RECORD_BF16) {
    return cannot(err, "rope_kv_insert: only rows of bf16");
  }
  row = (uint16_t*)malloc((size_t)(heads * (size > size_v ? size : size_v)) * sizeof(*row));
  if (row == NULL) return cannot(err, "rope_kv_insert: out of memory");
  for (t = 0; t < keys->shape[0]; ++t) {
    const int64_t slot = ((const int64_t*)p->slots.data)[t * p->slots.stride[0]];
    for (j = 0; p->rows_given == 0 && p->q.data != NULL && j < p->q.shape[1]; ++j) {
      make_head(p, &p->q, &p->q_weight, t, j, key_row);
      for (d = 0; d < size; ++d) *at3(&p->q_out, t, j, d) = key_row[d];
    }
    for (j = 0; j < heads; ++j) {
      if (p->rows_given != 0) {
        for (d = 0; d < size; ++d) key_row[d] = *at3(&p->k_row, t, j, d);
      } else {
        make_head(p, &p->k, &p->k_weight, t, j, key_row);
        for (d = 0; p->k_row.data != NULL && d < size; ++d) *at3(&p->k_row, t, j, d) = key_row[d];
      }
      memcpy(row + j * size, key_row, (size_t)size * sizeof(*row));
    }
    if (slot < 0) continue; /* -1 = no row */
    as_row_put(&p->k_cache, slot, row);
    for (j = 0; j < heads; ++j) {
      for (d = 0; d < size_v; ++d) row[j * size_v + d] = *at3(&p->v, t, j, d);
    }
    as_row_put(&p->v_cache, slot, row);
  }
  free(row);
  return AS_OK;
}

/* ---- paged_attention: each token over the rows of its request that it sees */

typedef struct attention_work {
  const as_paged_attention_params* params;
  int out_of_memory;
} attention_work;

/* A head of the row of a position of request r: its numbers lie side by side. */
static const uint16_t* cached(const as_paged_attention_params* p, const as_cache* cache,
                              const as_row_layout* layout, int64_t r, int64_t position,
                              int64_t head) {
  const int64_t column = position / layout->rows;
  const int32_t* table = (const int32_t*)p->table.data + r * p->table.stride[0];
  const int64_t block = table[column * p->table.stride[1]];
  const unsigned char* page =
      (const unsigned char*)cache->data.data + block * cache->data.stride[0];
  return (const uint16_t*)(const void*)(page +
                                        as_head_at(layout, position % layout->rows, head).payload);
}

static void attend(const as_paged_attention_params* p, int64_t t, int64_t h, double* logits) {
  const as_row_layout k_rows = as_cache_layout(&p->k_cache), v_rows = as_cache_layout(&p->v_cache);
  const int64_t head = h / (p->q.shape[1] / k_rows.heads); /* of K and V */
  const int64_t size = p->q.shape[2], size_v = p->o.shape[2];
  const int32_t r = ((const int32_t*)p->token_to_req.data)[t * p->token_to_req.stride[0]];
  const int64_t at = ((const int64_t*)p->positions.data)[t * p->positions.stride[0]];
  float* lse = (float*)p->lse.data + t * p->lse.stride[0] + h * p->lse.stride[1];
  double largest = -INFINITY, sum = 0, all, out[AS_MAX_HEAD_SIZE];
  int64_t end = 0, first = 0, i, d;
  if (r >= 0) end = ((const int32_t*)p->seq_lens.data)[r * p->seq_lens.stride[0]];
  if (p->causal != 0 && at + 1 < end) end = at + 1;
  if (p->window > 0 && at - p->window + 1 > 0) first = at - p->window + 1;
  for (i = first; i < end; ++i) {
    const uint16_t* key = cached(p, &p->k_cache, &k_rows, r, i, head);
    double dot = 0;
    for (d = 0; d < size; ++d) dot += (double)wide(*at3(&p->q, t, h, d)) * wide(key[d]);
    dot *= p->scale;
    if (p->soft_cap > 0) dot = p->soft_cap * tanh(dot / p->soft_cap);
    if (p->alibi_slopes.data != NULL) { /* a bias by distance */
      const float slope = ((const float*)p->alibi_slopes.data)[h * p->alibi_slopes.stride[0]];
      dot -= (double)slope * (double)(at > i ? at - i : i - at);
    }
    logits[i] = dot;
    if (dot > largest) largest = dot;
  }
  for (i = first; i < end; ++i) {
    logits[i] = exp(logits[i] - largest);
    sum += logits[i];
  }
  *lse = sum > 0 ? (float)(largest + log(sum)) : -INFINITY;
  all = sum; /* a sink takes its share of the weight and gives no value */
  if (p->sinks.data != NULL) {
    all += exp(((const float*)p->sinks.data)[h * p->sinks.stride[0]] - largest);
  }
  for (d = 0; d < size_v; ++d) out[d] = 0;
  for (i = first; i < end; ++i) {
    const uint16_t* value = cached(p, &p->v_cache, &v_rows, r, i, head);
    for (d = 0; d < size_v; ++d) out[d] += logits[i] * wide(value[d]);
  }
  for (d = 0; d < size_v; ++d) *at3(&p->o, t, h, d) = narrow(sum > 0 ? (float)(out[d] / all) : 0);
}

/* Tokens begin .. end - 1; other threads have the others. */
static void attend_tokens(void* ctx, int64_t begin, int64_t end) {
  attention_work* work = (attention_work*)ctx;
  const as_paged_attention_params* p = work->params;
  const int64_t most = p->table.shape[1] * p->k_cache.rows_per_block;
  double* logits = (double*)malloc((size_t)(most > 0 ? most : 1) * sizeof(double));
  int64_t t, h;
  if (logits == NULL) {
    work->out_of_memory = 1;
    return;
  }
  for (t = begin; t < end; ++t) {
    for (h = 0; h < p->q.shape[1]; ++h) attend(p, t, h, logits);
  }
  free(logits);
}

static int32_t paged_attention(const void* params, const as_call* call, as_error* err) {
  const as_paged_attention_params* p = (const as_paged_attention_params*)params;
  attention_work work = {NULL, 0};
  if (p->head.version != AS_PARAMS_VERSION || p->head.struct_size < sizeof(*p)) {
    return cannot(err, "paged_attention: params of another version");
  }
  if (p->k_cache.record != AS_RECORD_BF16 || p->k_cache.addressing != AS_PAGED ||
      p->v_cache.record != AS_RECORD_BF16) {
    return cannot(err, "paged_attention: only pages of rows of bf16");
  }
  work.params = p;
  if (call->threads != NULL) {
    call->threads->parallel_for(call->threads->pool, p->q.shape[0], 1, attend_tokens, &work);
  } else {
    attend_tokens(&work, 0, p->q.shape[0]);
  }
  return work.out_of_memory ? cannot(err, "paged_attention: out of memory") : AS_OK;
}

/* ---- what attnscope looks for */

static const as_lane_op ops[] = {
    AS_LANE_OP(AS_OP_ROPE_KV_INSERT, as_rope_kv_insert_params, rope_kv_insert),
    AS_LANE_OP(AS_OP_PAGED_ATTENTION, as_paged_attention_params, paged_attention)};

static const as_lane lane =
    AS_LANE("mydense", "The example of assets/plugin for dense attention.", ops);

AS_PLUGIN_EXPORT const as_lane* attnscope_lane(void) { return &lane; }
