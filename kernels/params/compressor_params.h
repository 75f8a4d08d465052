/* Params of the compressors: state rows, pooling, insertion. The attention compressor (d = 512) and
 * the indexer's own (d = 128) share them.
 *
 * coff = 2 for ratio 4 (overlap), 1 for ratio 128. A state row of token j is fp32
 * [C_j (coff*d) | Z_j (coff*d)], Z with ape already added. */
#ifndef ATTNSCOPE_KERNELS_PARAMS_COMPRESSOR_PARAMS_H
#define ATTNSCOPE_KERNELS_PARAMS_COMPRESSOR_PARAMS_H

#include "kernels/params/head.h"
#include "kernels/params/numeric_rules.h"

#ifdef __cplusplus
extern "C" {
#endif

/* compressor_state, indexer_compressor_state: state row slots[t] =
 * [proj[t, :coff*d] | proj[t, coff*d:] + ape[position mod ratio]], fp32; nothing for slot -1. */
typedef struct as_compressor_state_params {
  as_params_head head;
  as_tensor proj;      /* in  f32 [T,2*coff*d] */
  as_tensor ape;       /* in  f32 [ratio,coff*d] */
  as_tensor positions; /* in  i64 [T] */
  as_tensor slots;     /* in  i64 [T] */
  as_cache state;      /* out state rows, width 2*coff*d */
  int32_t ratio;       /* 4 or 128 */
  int32_t reserved;
} as_compressor_state_params;

/* compress_insert, indexer_compress_insert: for every token with slots[t] >= 0 (then p + 1 is
 * divisible by ratio): gather state rows of positions p-coff*ratio+1 .. p through the table,
 * positions < 0 masked (score -inf, value 0); per channel k of d: softmax of Z over the rows,
 * weighted sum of C. ratio 4: the older four rows use channels [0,d), the newer four [d,2d).
 * Then y = rmsnorm(pooled) * weight; RoPE on the last 64 dims at position p + 1 - ratio, from the
 * unrounded value; hadamard: normalised Hadamard transform of size d (indexer only), result
 * rounded to bf16, with AS_HADAMARD_ROUNDED its input as well. round_pooled: pooled and normed
 * values are rounded to bf16 in between. row[t] = bf16(...) is the row before quantisation; rows of
 * other tokens are left untouched. Cache row slots[t] = quantise(row[t]), by record: LATENT as
 * q_rope_kv_insert INDEX_FP8    scale = 2^ceil(log2(max(amax, 1e-4) / 448)) over all 128 dims,
 * stored as fp32 INDEX_MXFP4  per 32 dims: amax floor 6*2^-126, e = ceil(log2(amax / 6)), e2m1 RNE
 * codes, even dim in the low nibble scale_floor and fp4_rule may change floors and ties
 * (numeric_rules.h). rows_given: row is an input, only quantise-and-insert runs. */
typedef struct as_compress_insert_params {
  as_params_head head;
  as_cache state;         /* in  state rows */
  as_tensor table;        /* in  i32 [R,C] table of the state's group */
  as_tensor token_to_req; /* in  i32 [T] */
  as_tensor positions;    /* in  i64 [T] */
  as_tensor slots;        /* in  i64 [T] compressed slots, -1 = emits nothing */
  as_tensor weight;       /* in  bf16 [d] */
  as_rope rope;           /* in  the layer's rotary embedding */
  as_tensor row;          /* out bf16 [T,d], optional */
  as_cache cache;         /* out compressed rows */
  double eps;
  int32_t ratio;
  int32_t hadamard; /* as_hadamard */
  int32_t round_pooled;
  int32_t rows_given;
  int32_t scale_floor; /* as_scale_floor */
  int32_t fp4_rule;    /* as_fp4_rule */
} as_compress_insert_params;

#ifdef __cplusplus
}
#endif

#endif
