/* Taps of the op table: field of the struct S, axes, dtype, tolerance class. For the table's own
 * file alone. */
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

#endif
