/* The op table: for every op id its name, place, params size and taps. Stepping, tracing,
 * comparing, goldens, timelines, the plugin interface and "which ops lack a test" are generated
 * from it.
 *
 * Adding an op = one entry here, one params struct, one kernel, one reference. */
#ifndef ATTNSCOPE_KERNELS_PARAMS_OP_TABLE_H
#define ATTNSCOPE_KERNELS_PARAMS_OP_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/params/op_ids.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum as_phase { AS_PHASE_BEFORE = 0, AS_PHASE_LAYER = 1, AS_PHASE_AFTER = 2 } as_phase;

/* Layer types an op belongs to, by compress ratio 0 / 4 / 128. */
enum { AS_LAYER_SWA = 1, AS_LAYER_C4A = 2, AS_LAYER_C128A = 4, AS_LAYER_ALL = 7 };

typedef enum as_tap_kind {
  AS_TAP_TENSOR = 0, /* an as_tensor of the params struct */
  AS_TAP_CACHE = 1   /* rows of an as_cache: outputs are the rows written, inputs the rows read */
} as_tap_kind;

typedef enum as_tap_direction { AS_TAP_IN = 0, AS_TAP_OUT = 1 } as_tap_direction;

/* Which elements of a tap hold values. */
typedef enum as_tap_mask {
  AS_MASK_ALL = 0,
  AS_MASK_SLOTS = 1, /* row t is valid iff the i64 tensor at mask_offset has [t] >= 0 */
  AS_MASK_LENS = 2   /* columns < the i32 tensor at mask_offset [t] */
} as_tap_mask;

typedef struct as_tap_info {
  const char* name;
  const char* axes;     /* letters of the glossary, comma separated: "T,H,D" */
  const char* dtype;    /* of the kernel lanes: "bf16", "f32|bf16", "record", .. */
  const char* rule;     /* outputs: tolerance class of assets/tolerances.json; inputs: "" */
  uint8_t direction;    /* as_tap_direction */
  uint8_t kind;         /* as_tap_kind */
  uint8_t mask;         /* as_tap_mask */
  uint8_t optional;     /* an inner result that a lane may withhold */
  uint16_t offset;      /* of the as_tensor or as_cache in the params struct */
  uint16_t mask_offset; /* of the mask tensor; output caches: of the i64 slots written */
} as_tap_info;

typedef struct as_op_info {
  const char* name;
  const char* summary; /* one sentence */
  as_op_id id;
  uint8_t phase;  /* as_phase */
  uint8_t layers; /* AS_LAYER_* bits */
  uint16_t params_size;
  uint32_t num_taps;
  const as_tap_info* taps;
} as_op_info;

/* The entry of an id, NULL when out of range. */
const as_op_info* as_op_find(int32_t id);

/* The id of a name, -1 when unknown. */
int32_t as_op_by_name(const char* name);

#ifdef __cplusplus
}
#endif

#endif
