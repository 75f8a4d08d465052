/* The byte layout of latent rows of absorbed MLA as constants, for kernels and references; what
 * other code asks is kernels/params/row_format.h, and tests hold the two together. C99.
 *
 * LATENT_656: a row is whole, [512 e4m3][4 fp32 scales, one for each 128][64 bf16]; a page is rows
 * one behind the other. BF16 of one head: 576 numbers, likewise. */
#ifndef ATTNSCOPE_KERNELS_LAYOUT_MLA_ROWS_H
#define ATTNSCOPE_KERNELS_LAYOUT_MLA_ROWS_H

#include <stdint.h>

#include "kernels/params/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  AS_LATENT_656_CODES = 512,
  AS_LATENT_656_BLOCK = 128, /* codes that share a scale */
  AS_LATENT_656_BLOCKS = 4,
  AS_LATENT_656_SCALES = 512, /* byte at which they begin */
  AS_LATENT_656_ROPE = 528,   /* likewise the bf16 dims */
  AS_LATENT_656_BYTES = 656,
  AS_LATENT_BF16_BYTES = 1152
};

/* Bytes of a row; 0 of a record that is no latent row. */
static inline int64_t as_mla_row_bytes(int32_t record) {
  if (record == AS_RECORD_LATENT_656) return AS_LATENT_656_BYTES;
  return record == AS_RECORD_BF16 ? AS_LATENT_BF16_BYTES : 0;
}

/* Address of a slot's row in a cache, either addressing. slot >= 0. */
static inline unsigned char* as_mla_row(const as_cache* c, int64_t slot) {
  unsigned char* base = (unsigned char*)c->data.data;
  if (c->addressing == AS_LOGICAL) {
    return base + slot * c->data.stride[0] * as_dtype_size(c->data.dtype);
  }
  return base + slot / c->rows_per_block * c->data.stride[0] +
         slot % c->rows_per_block * as_mla_row_bytes(c->record);
}

#ifdef __cplusplus
}
#endif

#endif
