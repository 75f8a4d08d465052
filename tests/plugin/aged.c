/* A plugin built with a header older or newer than the program's, chosen when it is compiled:
 * AGE=NAME. Its ops are right where they are called. */
#include <attnscope_plugin.h>
#include <stddef.h>
#include <string.h>

#include "tests/plugin/bf16.h"

#define SHORTER_TABLE 1
#define LONGER_TABLE 2
#define NO_TABLE 3
#define LONGER_STRUCTS 4
#define OTHER_OPS 5
#define ONLY_OTHER_OPS 6
#define SHORT_LANE 7
#define SHORT_OPS 8
#define SHORT_PARAMS 9
#define HUGE_PARAMS 10
#define OTHER_PARAMS 11
#define TWICE 12
#define NO_FUNCTION 13
#define HELPER_OP 14

#if AGE == LONGER_STRUCTS
/* The next header's: two fields more. */
typedef struct residual_params {
  as_residual_params known;
  as_tensor bias;
  double scale;
} residual_params;
#else
typedef as_residual_params residual_params;
#endif

static int32_t refuse(as_error* err, const char* what) {
  strcpy(err->message, what);
  return AS_BAD_INPUT;
}

static int32_t residual(const void* params, const as_call* call, as_error* err) {
  const as_residual_params* p = (const as_residual_params*)params;
  int64_t t, c;
  (void)call;
  if (p->head.struct_size != sizeof(residual_params)) return refuse(err, "another size");
#if AGE == LONGER_STRUCTS
  if (((const residual_params*)params)->bias.data != NULL ||
      ((const residual_params*)params)->scale != 0) {
    return refuse(err, "fields that nobody set");
  }
#endif
  for (t = 0; t < p->h.shape[0]; ++t) {
    for (c = 0; c < p->h.shape[1]; ++c) {
      const float h = from_bf16(((uint16_t*)p->h.data)[t * p->h.stride[0] + c * p->h.stride[1]]);
      const float y = from_bf16(((uint16_t*)p->y.data)[t * p->y.stride[0] + c * p->y.stride[1]]);
      ((uint16_t*)p->out.data)[t * p->out.stride[0] + c * p->out.stride[1]] = to_bf16(h + y);
    }
  }
  return AS_OK;
}

#if AGE == SHORTER_TABLE || AGE == LONGER_TABLE || AGE == NO_TABLE
/* As version 1 of the lane had it: an entry for every op of its header. */
typedef struct table_of_ops {
  uint32_t struct_size, version;
  const char *name, *description;
  as_op_fn ops[AGE == SHORTER_TABLE ? AS_OP_RESIDUAL + 1 : 40];
} table_of_ops;

static const table_of_ops lane = {
#if AGE == NO_TABLE
    offsetof(table_of_ops, name),
#else
    sizeof(lane),
#endif
    1,
    "aged",
    "A plugin of the tests.",
#if AGE == LONGER_TABLE
    {[AS_OP_RESIDUAL] = residual, [35] = residual}
#else
    {[AS_OP_RESIDUAL] = residual}
#endif
};

AS_PLUGIN_EXPORT const table_of_ops* attnscope_lane(void) { return &lane; }

#else

#if AGE == LONGER_STRUCTS
typedef struct lane_op {
  as_lane_op known;
  const char* says;
} lane_op;
typedef struct long_lane {
  as_lane known;
  void* more;
} long_lane;
static const lane_op ops[] = {{AS_LANE_OP(900, as_schedule_params, residual), "unknown"},
                              {AS_LANE_OP(AS_OP_RESIDUAL, residual_params, residual), "known"}};
static const long_lane lane = {{sizeof(lane), AS_LANE_VERSION, "aged", "A plugin of the tests.", 2,
                                sizeof(lane_op), &ops[0].known},
                               NULL};
AS_PLUGIN_EXPORT const as_lane* attnscope_lane(void) { return &lane.known; }

#else

#if AGE == HELPER_OP
/* Right where b is empty. */
static int32_t merge_states(const void* params, const as_call* call, as_error* err) {
  const as_merge_states_params* p = (const as_merge_states_params*)params;
  (void)call;
  (void)err;
  memcpy(p->out.data, p->a.data, (size_t)as_tensor_numel(&p->a) * 4);
  memcpy(p->lse.data, p->lse_a.data, (size_t)as_tensor_numel(&p->lse_a) * 4);
  return AS_OK;
}
#endif

static const as_lane_op ops[] = {
#if AGE == OTHER_OPS
    AS_LANE_OP(77, as_sample_params, residual),
    AS_LANE_OP(-1, as_sample_params, residual),
#elif AGE == ONLY_OTHER_OPS
    AS_LANE_OP(77, as_sample_params, residual),
    AS_LANE_OP(2000, as_sample_params, residual)
#elif AGE == TWICE
    AS_LANE_OP(AS_OP_RESIDUAL, residual_params, residual),
#elif AGE == HELPER_OP
    AS_LANE_OP(AS_OP_MERGE_STATES, as_merge_states_params, merge_states),
#endif
#if AGE == SHORT_PARAMS
    {AS_OP_RESIDUAL, AS_PARAMS_VERSION, sizeof(residual_params) - 8, 0, residual}
#elif AGE == HUGE_PARAMS
        {AS_OP_RESIDUAL, AS_PARAMS_VERSION, 1u << 20, 0, residual}
#elif AGE == OTHER_PARAMS
    {AS_OP_RESIDUAL, AS_PARAMS_VERSION + 8, sizeof(residual_params), 0, residual}
#elif AGE == NO_FUNCTION
    AS_LANE_OP(AS_OP_RESIDUAL, residual_params, NULL)
#elif AGE != ONLY_OTHER_OPS
    AS_LANE_OP(AS_OP_RESIDUAL, residual_params, residual)
#endif
};

static const as_lane lane = {
#if AGE == SHORT_LANE
    sizeof(as_lane) - 8,
#else
    sizeof(as_lane),
#endif
    AS_LANE_VERSION,
    "aged",
    "A plugin of the tests.",
    sizeof(ops) / sizeof(ops[0]),
#if AGE == SHORT_OPS
    sizeof(as_lane_op) - 8,
#else
    sizeof(as_lane_op),
#endif
    ops};

AS_PLUGIN_EXPORT const as_lane* attnscope_lane(void) {
  (void)residual;
  return &lane;
}

#endif
#endif
