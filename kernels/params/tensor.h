/* A strided tensor and a cache as every op sees them: pointers and numbers, no ownership.
 *
 * as_tensor: element i,j,.. lies at data + dtype_size * (i*stride[0] + j*stride[1] + ..); strides
 * are in elements, 64 bits. An absent optional tensor has data == NULL and rank 0.
 *
 * as_cache: one layer's cache of one kind.
 *   AS_PAGED:   data is U8 [num_blocks, page_bytes], stride[0] = page stride in bytes (which may be
 *               larger than the page: packed slab), stride[1] = 1. A slot is
 *               block * rows_per_block + row; where a row's bytes lie inside its page is told by
 *               kernels/params/row_format.h from `record`, heads and rows_per_block.
 *   AS_LOGICAL: no pages. data is [rows, ...]: U8 with one whole record a row (logical form of
 *               row_format.h), or F32/F64 [rows, width] with plain values (references).
 *               A slot is simply a row number; where an op takes block tables, table[r][0] is the
 *               first row of request r and position (or entry) p lies in row table[r][0] + p.
 *   data.reserved: KV heads of a row, 0 = 1.
 */
#ifndef ATTNSCOPE_KERNELS_PARAMS_TENSOR_H
#define ATTNSCOPE_KERNELS_PARAMS_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/params/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AS_MAX_RANK 4

typedef struct as_tensor {
  void* data;
  int32_t dtype; /* as_dtype */
  int32_t rank;
  int64_t shape[AS_MAX_RANK];
  int64_t stride[AS_MAX_RANK]; /* in elements */
  int32_t device;              /* 0 = host, n = GPU n-1 */
  int32_t reserved;            /* 0, or a rule where a struct says so */
} as_tensor;

/* What one cache row holds; kernels/params/row_format.h says how. Values never change once
 * released. */
typedef enum as_record {
  AS_RECORD_NONE = 0,
  AS_RECORD_LATENT = 1,      /* 448 e4m3 + 64 bf16 + 7 UE8M0 + 1 zero byte: 584 B, width 512 */
  AS_RECORD_INDEX_FP8 = 2,   /* 128 e4m3 + one fp32 power-of-two scale: 132 B, width 128 */
  AS_RECORD_INDEX_MXFP4 = 3, /* 64 bytes of e2m1 pairs + 4 UE8M0: 68 B, width 128 */
  AS_RECORD_STATE = 4,       /* fp32 [kv | score + ape], width = 2 * coff * d */
  /* Of any number of KV heads, of any width: */
  AS_RECORD_BF16 = 5,
  AS_RECORD_F16 = 6,
  AS_RECORD_FP8_TENSOR = 7,       /* e4m3; one scale beside the cache */
  AS_RECORD_FP8_HEAD = 8,         /* e4m3; a scale a head, beside the cache */
  AS_RECORD_FP8_TOKEN = 9,        /* e4m3; an fp32 scale a row */
  AS_RECORD_INT8_TOKEN_HEAD = 10, /* int8; fp32 scale and zero point a row and head */
  AS_RECORD_LATENT_656 = 11,      /* 512 e4m3, 4 fp32 scales, 64 bf16: 656 B, width 576 */
  AS_RECORD_FP8_TOKEN_HEAD = 12,  /* e4m3; an fp32 scale a row and head */
  AS_RECORD_E5M2_TENSOR = 13,     /* as 7, 8 and 12, of e5m2 */
  AS_RECORD_E5M2_HEAD = 14,
  AS_RECORD_E5M2_TOKEN_HEAD = 15,
  /* Added to 5 .. 10 and 12 .. 15: pages are [heads][rows], not [rows][heads]. */
  AS_RECORD_HND = 256
} as_record;

typedef enum as_addressing { AS_PAGED = 0, AS_LOGICAL = 1 } as_addressing;

typedef struct as_cache {
  as_tensor data;
  int32_t record;         /* as_record */
  int32_t addressing;     /* as_addressing */
  int32_t rows_per_block; /* paged: rows in one page (64, 2, 4, 8); logical: 0 */
  int32_t width;          /* values in one row, of all its heads */
} as_cache;

/* A layer's rotary embedding. Frequencies f_i = base^(-2i/64), i < 32; with factor > 1 (YaRN):
 * low = floor(cd(beta_fast)), high = ceil(cd(beta_slow)), both clamped to [0, 63], high += 0.001 if
 * equal, cd(n) = 64 ln(original_max_pos / (2 pi n)) / (2 ln base);
 * ramp_i = clamp((i - low) / (high - low), 0, 1); f_i <- f_i / factor * ramp_i + f_i * (1 -
 * ramp_i). In float64, or as table.reserved (as_rope_frequencies of numeric_rules.h) says: fp32 is
 * f_i = 1 / fp32(base^(2i/64)) and every step after it rounded, 1 - ramp_i being one of them.
 * table: f32 [max_pos,64], row t = cos then sin (32 each) of the fp32 product fp32(t) * fp32(f_i),
 * evaluated in float64 and rounded once. All lanes read the table, the references too: it is data.
 * Without one (data NULL) references compute its rows from the numbers, ref.exact in float64 from
 * the angle on. */
typedef struct as_rope {
  as_tensor table;
  double base;   /* 160000 in compressed layers, 10000 in SWA-only layers */
  double factor; /* YaRN factor, 16; 1 = no YaRN */
  double original_max_pos;
  double beta_fast;
  double beta_slow;
} as_rope;

static inline int64_t as_tensor_numel(const as_tensor* t) {
  int64_t n = t->rank > 0 ? 1 : 0;
  for (int32_t i = 0; i < t->rank; ++i) n *= t->shape[i];
  return n;
}

#ifdef __cplusplus
}
#endif

#endif
