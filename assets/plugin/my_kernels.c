/* Two kernels of one's own for attnscope, in C99: residual, the smallest op there is, and
 * sparse_attention, the one that matters, as plain as it can be written. Copy this file and start
 * from it; GUIDE.md says how.
 *
 *   cc -std=c99 -O2 -shared -fPIC -I include my_kernels.c -o libmine.so -lm
 *   attnscope run default --plugin ./libmine.so --lane plugin:mine
 */
#include <attnscope_plugin.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers: bf16, e4m3, UE8M0 */

static float from_bf16(uint16_t bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof(value));
  return value;
}

/* Round to nearest, ties to even; NaN stays NaN. */
static uint16_t to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static float from_e4m3(unsigned char code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  float value;
  if (exponent == 15 && mantissa == 7) return NAN;
  value =
      exponent == 0 ? ldexpf((float)mantissa, -9) : ldexpf((float)(8 + mantissa), exponent - 10);
  return code & 0x80 ? -value : value;
}

/* ---- tensors: elements by index, whatever the strides are */

static uint16_t* bf16_at(const as_tensor* t, int64_t i, int64_t j, int64_t k) {
  const int64_t last = t->rank > 2 ? k * t->stride[2] : 0;
  return (uint16_t*)t->data + i * t->stride[0] + j * t->stride[1] + last;
}

static int32_t i32_at(const as_tensor* t, int64_t i, int64_t j) {
  const int64_t last = t->rank > 1 ? j * t->stride[1] : 0;
  return ((const int32_t*)t->data)[i * t->stride[0] + last];
}

/* Fills in what attnscope shows when an op cannot do what is asked. */
static int32_t refuse(as_error* err, const char* message) {
  err->code = AS_BAD_INPUT;
  strncpy(err->message, message, sizeof(err->message) - 1);
  err->message[sizeof(err->message) - 1] = '\0';
  return AS_BAD_INPUT;
}

/* ---- residual: out = bf16(h + y) */

static int32_t residual(const void* params, const as_call* call, as_error* err) {
  const as_residual_params* p = (const as_residual_params*)params;
  int64_t t, c;
  (void)call;
  if (p->head.version != AS_PARAMS_VERSION || p->head.struct_size < sizeof(*p)) {
    return refuse(err, "residual: params of another version");
  }
  for (t = 0; t < p->h.shape[0]; ++t) {
    for (c = 0; c < p->h.shape[1]; ++c) {
      *bf16_at(&p->out, t, c, 0) =
          to_bf16(from_bf16(*bf16_at(&p->h, t, c, 0)) + from_bf16(*bf16_at(&p->y, t, c, 0)));
    }
  }
  return AS_OK;
}

/* ---- sparse_attention: over the window's rows and the selected ones, with a sink */

/* A latent row: 448 e4m3 codes in 7 blocks with a power-of-two scale each, then 64 bf16. */
static void read_row(const as_cache* cache, int64_t slot, float* values) {
  const as_row_address row = as_cache_row(cache, slot);
  int d;
  for (d = 0; d < AS_NOPE_DIM; ++d) {
    values[d] = ldexpf(from_e4m3(row.payload[d]), row.scales[d / AS_QUANT_BLOCK] - 127);
  }
  for (d = 0; d < AS_ROPE_DIM; ++d) {
    uint16_t bits;
    memcpy(&bits, row.payload + AS_NOPE_DIM + 2 * d, sizeof(bits));
    values[AS_NOPE_DIM + d] = from_bf16(bits);
  }
}

/* The rows of one list behind those that are there already; returns how many there are then. */
static int64_t gather(const as_cache* cache, const as_tensor* indices, const as_tensor* lens,
                      int64_t token, float* rows, int64_t count) {
  int64_t k, len;
  if (indices->data == NULL) return count;
  len = i32_at(lens, token, 0);
  if (len > indices->shape[1]) len = indices->shape[1];
  for (k = 0; k < len; ++k) {
    const int32_t slot = i32_at(indices, token, k);
    if (slot < 0) continue; /* -1 = none */
    read_row(cache, slot, rows + count++ * AS_HEAD_DIM);
  }
  return count;
}

static void attend(const as_sparse_attention_params* p, int64_t token, int64_t head,
                   const float* rows, int64_t count, double* logits) {
  const float sink = ((const float*)p->sinks.data)[head * p->sinks.stride[0]];
  float* lse = (float*)p->lse.data + token * p->lse.stride[0] + head * p->lse.stride[1];
  float q[AS_HEAD_DIM];
  double largest = -INFINITY, sum = 0, share;
  int64_t k;
  int d;
  for (d = 0; d < AS_HEAD_DIM; ++d) q[d] = from_bf16(*bf16_at(&p->q, token, head, d));
  for (k = 0; k < count; ++k) {
    double dot = 0;
    for (d = 0; d < AS_HEAD_DIM; ++d) {
      dot += (double)q[d] * rows[k * AS_HEAD_DIM + d];
    }
    logits[k] = dot * p->scale;
    if (logits[k] > largest) largest = logits[k];
  }
  for (k = 0; k < count; ++k) {
    logits[k] = exp(logits[k] - largest);
    sum += logits[k];
  }
  /* The sink takes its share of the weight and gives no value; the LSE is told without it. Its e^x
   * may be infinite: nothing is left for the rows then. */
  share = 1 / (sum + exp(sink - largest));
  *lse = count == 0 ? INFINITY : (float)(largest + log(sum));
  for (d = 0; d < AS_HEAD_DIM; ++d) {
    double value = 0;
    for (k = 0; k < count; ++k) value += logits[k] * rows[k * AS_HEAD_DIM + d];
    *bf16_at(&p->o, token, head, d) = to_bf16(count == 0 ? 0.0f : (float)(value * share));
  }
}

typedef struct attention_work {
  const as_sparse_attention_params* params;
  int64_t most; /* rows a token can have */
  int out_of_memory;
} attention_work;

/* Tokens begin .. end - 1; other threads have the others. */
static void attend_tokens(void* ctx, int64_t begin, int64_t end) {
  attention_work* work = (attention_work*)ctx;
  const as_sparse_attention_params* p = work->params;
  float* rows = (float*)malloc((size_t)work->most * AS_HEAD_DIM * sizeof(float));
  double* logits = (double*)malloc((size_t)work->most * sizeof(double));
  int64_t t, h;
  if (rows == NULL || logits == NULL) {
    work->out_of_memory = 1;
  } else {
    for (t = begin; t < end; ++t) {
      int64_t count = gather(&p->cache, &p->indices, &p->topk_length, t, rows, 0);
      count = gather(&p->extra_cache, &p->extra_indices, &p->extra_topk_length, t, rows, count);
      for (h = 0; h < p->q.shape[1]; ++h) attend(p, t, h, rows, count, logits);
    }
  }
  free(rows);
  free(logits);
}

static int32_t sparse_attention(const void* params, const as_call* call, as_error* err) {
  const as_sparse_attention_params* p = (const as_sparse_attention_params*)params;
  attention_work work = {NULL, 1, 0};
  if (p->head.version != AS_PARAMS_VERSION || p->head.struct_size < sizeof(*p)) {
    return refuse(err, "sparse_attention: params of another version");
  }
  if (p->cache.record != AS_RECORD_LATENT || p->q.shape[2] != AS_HEAD_DIM) {
    return refuse(err, "sparse_attention: only latent rows of 512 values");
  }
  work.params = p;
  work.most += p->indices.shape[1];
  if (p->extra_indices.data != NULL) work.most += p->extra_indices.shape[1];
  if (call->threads != NULL) {
    call->threads->parallel_for(call->threads->pool, p->q.shape[0], 1, attend_tokens, &work);
  } else {
    attend_tokens(&work, 0, p->q.shape[0]);
  }
  return work.out_of_memory ? refuse(err, "sparse_attention: out of memory") : AS_OK;
}

/* ---- what attnscope looks for */

static const as_lane_op ops[] = {
    AS_LANE_OP(AS_OP_SPARSE_ATTENTION, as_sparse_attention_params, sparse_attention),
    AS_LANE_OP(AS_OP_RESIDUAL, as_residual_params, residual)};

static const as_lane lane =
    AS_LANE("mine", "The example of assets/plugin: residual and sparse_attention.", ops);

AS_PLUGIN_EXPORT const as_lane* attnscope_lane(void) { return &lane; }
