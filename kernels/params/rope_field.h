/* Where an op's params struct has its rotary embedding, which is no tap: its table is data of the
 * model.
 *
 * Adding an op that rotates = one entry in rope_field.c. */
#ifndef ATTNSCOPE_KERNELS_PARAMS_ROPE_FIELD_H
#define ATTNSCOPE_KERNELS_PARAMS_ROPE_FIELD_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Offset of the op's as_rope, 0 where it has none. */
uint32_t as_rope_offset(int32_t op);

#ifdef __cplusplus
}
#endif

#endif
