/* Taps and numbers of the op table: field of the struct S, axes, dtype, tolerance class. For the
 * table's own file alone. */
#ifndef ATTNSCOPE_KERNELS_PARAMS_TAP_MACROS_H
#define ATTNSCOPE_KERNELS_PARAMS_TAP_MACROS_H

#include "kernels/params/op_table.h"

#define IN(S, field, axes, dtype)                                                                \
  {                                                                                              \
    #field, axes, dtype, "", AS_TAP_IN, AS_TAP_TENSOR, AS_MASK_ALL, 0, offsetof(S, field), 0, 0, \
        0, 0                                                                                     \
  }
#define IN_CACHE(S, field, axes)                                                                   \
  {                                                                                                \
    #field, axes, "record", "", AS_TAP_IN, AS_TAP_CACHE, AS_MASK_ALL, 0, offsetof(S, field), 0, 0, \
        0, 0                                                                                       \
  }
#define OUT(S, field, axes, dtype, rule)                                                         \
  {                                                                                              \
    #field, axes, dtype, rule, AS_TAP_OUT, AS_TAP_TENSOR, AS_MASK_ALL, 0, offsetof(S, field), 0, \
        0, 0, 0                                                                                  \
  }

/* Two that are alike. */
#define IN_BOTH(S, field, other, axes, dtype) IN(S, field, axes, dtype), IN(S, other, axes, dtype)
#define OUT_BOTH(S, field, other, axes, dtype, rule) \
  OUT(S, field, axes, dtype, rule), OUT(S, other, axes, dtype, rule)

/* Taps that some ops alone have. */
#define IN_OPTIONAL(S, field, axes, dtype)                                                       \
  {                                                                                              \
    #field, axes, dtype, "", AS_TAP_IN, AS_TAP_TENSOR, AS_MASK_ALL, 1, offsetof(S, field), 0, 0, \
        0, 0                                                                                     \
  }
#define OUT_OPTIONAL(S, field, axes, dtype, rule)                                                \
  {                                                                                              \
    #field, axes, dtype, rule, AS_TAP_OUT, AS_TAP_TENSOR, AS_MASK_ALL, 1, offsetof(S, field), 0, \
        0, 0, 0                                                                                  \
  }
#define OUT_LENS(S, field, axes, dtype, rule, lens)                                            \
  {                                                                                            \
    #field, axes, dtype, rule, AS_TAP_OUT, AS_TAP_TENSOR, AS_MASK_LENS, 0, offsetof(S, field), \
        offsetof(S, lens), 0, 0, 0                                                             \
  }
#define IN_LENS(S, field, axes, dtype, lens)                                                \
  {                                                                                         \
    #field, axes, dtype, "", AS_TAP_IN, AS_TAP_TENSOR, AS_MASK_LENS, 0, offsetof(S, field), \
        offsetof(S, lens), 0, 0, 0                                                          \
  }
#define OUT_CACHE(S, field, axes, rule, slots)                                                    \
  {                                                                                               \
    #field, axes, "record", rule, AS_TAP_OUT, AS_TAP_CACHE, AS_MASK_SLOTS, 0, offsetof(S, field), \
        offsetof(S, slots), 0, 0, 0                                                               \
  }
/* Of ops that quantise a row: the row, and what follows from it. */
#define OUT_ROW(S, field, axes, rule, slots)                                                     \
  {                                                                                              \
    #field, axes, "bf16", rule, AS_TAP_OUT, AS_TAP_TENSOR, AS_MASK_SLOTS, 1, offsetof(S, field), \
        offsetof(S, slots), offsetof(S, rows_given), 0, 0                                        \
  }
#define OUT_ROW_OF_ALL(S, field, axes, rule)                                                      \
  {                                                                                               \
    #field, axes, "bf16", rule, AS_TAP_OUT, AS_TAP_TENSOR, AS_MASK_ALL, 1, offsetof(S, field), 0, \
        offsetof(S, rows_given), 0, 0                                                             \
  }
#define OUT_CODES(S, field, axes, dtype, rule)                                                   \
  {                                                                                              \
    #field, axes, dtype, rule, AS_TAP_OUT, AS_TAP_TENSOR, AS_MASK_ALL, 0, offsetof(S, field), 0, \
        0, 1, 0                                                                                  \
  }
#define OUT_CODES_OF_SOME(S, field, axes, dtype, rule) /* calls alone */                         \
  {                                                                                              \
    #field, axes, dtype, rule, AS_TAP_OUT, AS_TAP_TENSOR, AS_MASK_ALL, 1, offsetof(S, field), 0, \
        0, 1, 0                                                                                  \
  }
#define OUT_QUANTISED(S, field, axes, rule, slots)                                                \
  {                                                                                               \
    #field, axes, "record", rule, AS_TAP_OUT, AS_TAP_CACHE, AS_MASK_SLOTS, 0, offsetof(S, field), \
        offsetof(S, slots), 0, 1, 0                                                               \
  }
/* The same of a cache whose rows are another tensor's. */
#define OUT_STORED(S, field, axes, rule, slots, from)                                             \
  {                                                                                               \
    #field, axes, "record", rule, AS_TAP_OUT, AS_TAP_CACHE, AS_MASK_SLOTS, 0, offsetof(S, field), \
        offsetof(S, slots), 0, 1, offsetof(S, from)                                               \
  }

/* What a struct holds beside taps. */
#define INTEGER(S, field) \
  { #field, AS_PARAM_INTEGER, 0, offsetof(S, field) }
#define LATER_INTEGER(S, field) \
  { #field, AS_PARAM_INTEGER, 1, offsetof(S, field) }
#define REAL(S, field) \
  { #field, AS_PARAM_REAL, 0, offsetof(S, field) }
#define ROPE(S, field) \
  { #field, AS_PARAM_ROPE, 0, offsetof(S, field) }

#endif
