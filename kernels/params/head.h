/* What every params struct starts with, so that a lane can refuse a struct it was not built for.
 * Structs grow at their end only, by fields whose zeros mean what was so before; anything else is
 * another version. */
#ifndef ATTNSCOPE_KERNELS_PARAMS_HEAD_H
#define ATTNSCOPE_KERNELS_PARAMS_HEAD_H

#include <stdint.h>

#include "kernels/params/tensor.h"

#define AS_PARAMS_VERSION 1u

typedef struct as_params_head {
  uint32_t struct_size; /* sizeof the whole struct */
  uint32_t version;     /* AS_PARAMS_VERSION */
} as_params_head;

#endif
