/* The op table: for every op id its name, place, role, params size and taps. Stepping, tracing,
 * comparing, goldens, timelines, the plugin interface and "which ops lack a test" are generated
 * from it.
 *
 * Adding an op = one entry in op_table.c, one params struct, one kernel, one reference. */
#ifndef ATTNSCOPE_KERNELS_PARAMS_OP_TABLE_H
#define ATTNSCOPE_KERNELS_PARAMS_OP_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/params/op_ids.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum as_phase {
  AS_PHASE_BEFORE = 0,
  AS_PHASE_LAYER = 1,
  AS_PHASE_AFTER = 2,
  AS_PHASE_NONE = 3 /* helper ops: no place in a step */
} as_phase;

/* What an op is for, whatever the family of models: views and comparisons ask for roles. */
typedef enum as_role {
  AS_ROLE_UNKNOWN = 0,
  AS_ROLE_METADATA,    /* decides what runs, or makes tables and slots for all layers */
  AS_ROLE_INDEX_LIST,  /* lists which rows an attention op reads */
  AS_ROLE_NORM,        /* normalises rows */
  AS_ROLE_PROJECTION,  /* multiplies by a weight matrix */
  AS_ROLE_CACHE_WRITE, /* its result is rows of a cache */
  AS_ROLE_QUERY,       /* makes the queries that select */
  AS_ROLE_SCORE,       /* scores the entries to select from */
  AS_ROLE_SELECT,      /* selects entries by their scores */
  AS_ROLE_ATTENTION,   /* weighs values by scores that sum up to one */
  AS_ROLE_ROTATION,    /* rotates values and does nothing else to them but round or quantise */
  AS_ROLE_RESIDUAL,    /* adds a layer's result to the hidden state */
  AS_ROLE_SAMPLE,      /* picks tokens */
  AS_ROLE_COPY,        /* moves rows or blocks */
  AS_ROLE_COUNT
} as_role;

/* What else is true of an op; bits. */
enum {
  AS_ROTATES = 1,   /* applies a rotary embedding, or undoes it */
  AS_QUANTISES = 2, /* puts out codes of a format narrower than bf16 */
  AS_FUSES = 4,     /* a lane may compute it together with the op before or behind it */
  AS_BY_ENGINE = 8  /* the engine carries it out, whatever lane runs the others */
};

/* Layer types an op belongs to: DeepSeek-V4's by compress ratio 0 / 4 / 128, those of dense
 * attention, those of absorbed MLA over all tokens and over those that an indexer selects. A model
 * runs the ops of its own family alone. */
enum {
  AS_LAYER_SWA = 1,
  AS_LAYER_C4A = 2,
  AS_LAYER_C128A = 4,
  AS_LAYER_DEEPSEEK_V4 = 7, /* all three */
  AS_LAYER_DENSE = 8,
  AS_LAYER_MLA = 16,
  AS_LAYER_DSA = 32,
  AS_LAYER_ANY = 63,
  AS_LAYER_DRAFT = 64 /* the draft layer alone, which has the ops of a layer with a window too */
};

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
  uint8_t optional;     /* an inner result that a lane may withhold, or what some calls have */
  uint16_t offset;      /* of the as_tensor or as_cache in the params struct */
  uint16_t mask_offset; /* of the mask tensor; output caches: of the i64 slots written */
  uint16_t given_by;    /* the row before quantisation: of the int32_t that, where it is not 0, says
                           that the row is an input and only what follows from it is computed */
  uint8_t follows_row;  /* an output that follows from that row */
  uint16_t stores;      /* of the input whose values its rows are; 0 = they are that row's */
} as_tap_info;

/* What a params struct holds beside taps. */
typedef enum as_param_kind {
  AS_PARAM_INTEGER = 0, /* int32_t */
  AS_PARAM_REAL = 1,    /* double */
  AS_PARAM_ROPE = 2     /* as_rope, a rotary embedding: its table is data of the model */
} as_param_kind;

typedef struct as_param_info {
  const char* name;
  uint8_t kind;          /* as_param_kind */
  uint8_t may_be_absent; /* from files, then 0: came later than the format */
  uint16_t offset;
} as_param_info;

typedef struct as_op_info {
  const char* name;
  const char* summary; /* one sentence */
  as_op_id id;
  uint8_t phase;        /* as_phase */
  uint8_t layers;       /* AS_LAYER_* bits; none for helper ops */
  uint8_t role;         /* as_role */
  uint8_t traits;       /* AS_ROTATES and the like */
  uint16_t params_size; /* of this header */
  uint16_t first_size;  /* when the op was released: fields behind it came later, zero as before */
  uint32_t num_taps;
  uint32_t num_fields;
  const as_tap_info* taps;
  const as_param_info* fields; /* NULL where it has none */
} as_op_info;

/* The entry of an id, NULL when unknown. */
const as_op_info* as_op_find(int32_t id);

/* The entry at a place of the list, NULL behind its end:
 *   for (int i = 0; as_op_at(i) != NULL; ++i) .. */
const as_op_info* as_op_at(int32_t index);

/* The id of a name, -1 when unknown. */
int32_t as_op_by_name(const char* name);

/* Of an op that has a place in a step; -1 for helper ops too. */
int32_t as_step_op_by_name(const char* name);

/* Whether an op has a trait, or what it is for; none of an unknown one. */
int as_op_has(int32_t id, int32_t trait);
int32_t as_op_role(int32_t id);

/* The tap that is the row before quantisation, NULL where the op has none. */
const as_tap_info* as_op_row(int32_t id);

/* The offset of the op's rotary embedding, 0 where it has none. */
uint32_t as_rope_offset(int32_t id);

/* The name of a role, "?" when unknown: "attention", "cache write". */
const char* as_role_name(int32_t role);

#ifdef __cplusplus
}
#endif

#endif
