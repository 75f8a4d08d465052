/* The helper ops: ids beside those of the op table, the same entries, a lane of their own. */
#ifndef ATTNSCOPE_KERNELS_PARAMS_HELPER_TABLE_H
#define ATTNSCOPE_KERNELS_PARAMS_HELPER_TABLE_H

#include "kernels/params/lane.h"
#include "kernels/params/op_table.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers far from the op ids, so that neither is taken for the other. Never change meaning once
 * released. */
typedef enum as_helper_id {
  AS_HELPER_FIRST = 1000,
  AS_HELPER_MERGE_STATES = 1000,
  AS_HELPER_GATHER_ROWS = 1001,
  AS_HELPER_COPY_BLOCKS = 1002,
  AS_HELPER_WORKSPACE_ATTENTION = 1003,
  AS_HELPER_INVERSE_ROPE_QUANTISE = 1004,
  AS_HELPER_FP8_LINEAR = 1005,
  AS_HELPER_END = 1006
} as_helper_id;

enum { AS_HELPER_COUNT = AS_HELPER_END - AS_HELPER_FIRST };

/* What the table says of a helper op; it has no place in a step. */
typedef struct as_helper_info {
  const char* name;
  const char* summary; /* one sentence */
  as_helper_id id;
  uint16_t params_size;
  uint32_t num_taps;
  const as_tap_info* taps;
} as_helper_info;

/* The entry of an id, NULL when out of range. */
const as_helper_info* as_helper_find(int32_t id);

typedef struct as_helper_lane {
  uint32_t struct_size;
  uint32_t version; /* AS_LANE_VERSION */
  const char* name;
  const char* description;       /* one sentence */
  as_op_fn ops[AS_HELPER_COUNT]; /* by id - AS_HELPER_FIRST; NULL where there is none */
} as_helper_lane;

#ifdef __cplusplus
}
#endif

#endif
