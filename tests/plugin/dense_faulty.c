/* The example for dense attention with one fault, chosen when it is compiled: FAULT=NAME. */
#define attnscope_lane right_lane
#include "assets/plugin/my_dense_kernels.c"
#undef attnscope_lane

#define DENSE_WINDOW_INCLUSIVE 1
#define DENSE_VALUES_OF_KEYS 2
#define DENSE_OTHER_PAIRS 3
#define DENSE_WRITES_PAGE 4

static int32_t wrong_insert(const void* params, const as_call* call, as_error* err) {
  as_rope_kv_insert_params p = *(const as_rope_kv_insert_params*)params;
#if FAULT == DENSE_OTHER_PAIRS
  p.style = 1 - p.style;
#endif
  return rope_kv_insert(&p, call, err);
}

static int32_t wrong_attention(const void* params, const as_call* call, as_error* err) {
  as_paged_attention_params p = *(const as_paged_attention_params*)params;
#if FAULT == DENSE_WINDOW_INCLUSIVE
  if (p.window > 0) ++p.window;
#elif FAULT == DENSE_VALUES_OF_KEYS
  p.v_cache = p.k_cache;
#elif FAULT == DENSE_WRITES_PAGE
  ((unsigned char*)p.k_cache.data.data)[p.k_cache.data.stride[0]] ^= 1;
#endif
  return paged_attention(&p, call, err);
}

static const as_lane_op wrong_ops[] = {
    AS_LANE_OP(AS_OP_ROPE_KV_INSERT, as_rope_kv_insert_params, wrong_insert),
    AS_LANE_OP(AS_OP_PAGED_ATTENTION, as_paged_attention_params, wrong_attention)};

static const as_lane wrong_lane = AS_LANE("faulty", NULL, wrong_ops);

AS_PLUGIN_EXPORT const as_lane* attnscope_lane(void) { return &wrong_lane; }
