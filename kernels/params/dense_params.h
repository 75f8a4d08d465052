/* Params of the dense ops around attention: norms, projections, residual.
 *
 * Contract of every projection: bf16 inputs and weights (stored [out, in]), products summed in fp32
 * or better, one rounding to the output dtype. Norms: fp32 or better inside, one rounding to bf16;
 * every weighted norm multiplies by w (not 1 + w).
 *
 * A projection in FP8 has its weight as e4m3 codes with a scale for each block of 128 x 128, and
 * quantises its inputs: per token and 128 of them
 *   scale = 2^ceil(log2(max(amax, 1e-4) / 448)), code = e4m3fn_rne_sat(x / scale)
 *   y[t,o] = sum over blocks b of scale[t,b] * weight_scale[o/128,b] * sum in b of code * code
 * Products and sums of a block in fp32 or better, as is the sum of blocks; one rounding. */
#ifndef ATTNSCOPE_KERNELS_PARAMS_DENSE_PARAMS_H
#define ATTNSCOPE_KERNELS_PARAMS_DENSE_PARAMS_H

#include "kernels/params/head.h"

#ifdef __cplusplus
extern "C" {
#endif

/* attn_norm, final_norm: y = x * rsqrt(mean(x^2) + eps) * (weight_plus_one + w). final_norm has T =
 * N sampled rows. */
typedef struct as_rms_norm_params {
  as_params_head head;
  as_tensor x;      /* in  bf16 [T,hidden] */
  as_tensor weight; /* in  bf16 [hidden] */
  as_tensor y;      /* out bf16 [T,hidden] */
  double eps;
  int32_t weight_plus_one; /* 0 or 1 */
  int32_t reserved;
} as_rms_norm_params;

/* q_kv_a_proj, q_b_proj, compressor_proj, indexer_compressor_proj, indexer_q_proj,
 * indexer_weights_proj, wo_b, q_proj, k_proj, v_proj, o_proj, index_k_proj, index_weights_proj,
 * lm_head:
 *   y[t,o] = sum_i x[t,i] * weight[o,i]
 * y is bf16, or f32 for the compressor projections, index_weights_proj and lm_head. The dtype of
 * weight says whether the projection is in FP8; q_kv_a_proj, q_b_proj, indexer_q_proj and wo_b may
 * be. */
typedef struct as_linear_params {
  as_params_head head;
  as_tensor x;            /* in  bf16 [T,in] */
  as_tensor weight;       /* in  bf16 [out,in]; or u8 codes, out and in multiples of 128 */
  as_tensor y;            /* out bf16 or f32 [T,out] */
  as_tensor weight_scale; /* in  f32 [out/128,in/128] of codes; absent with a bf16 weight */
} as_linear_params;

#define AS_PROJECTION_BLOCK 128 /* inputs, and outputs of a weight, that share a scale in FP8 */

/* q_kv_norm: splits [q_lora | D] and normalises both halves with their own weight. Columns behind
 * them, the rotary key of absorbed MLA, are not looked at. */
typedef struct as_q_kv_norm_params {
  as_params_head head;
  as_tensor qkv;       /* in  bf16 [T,W], W >= q_lora + D */
  as_tensor q_weight;  /* in  bf16 [q_lora] */
  as_tensor kv_weight; /* in  bf16 [D] */
  as_tensor qr;        /* out bf16 [T,q_lora] */
  as_tensor kv;        /* out bf16 [T,D] */
  double eps;
} as_q_kv_norm_params;

/* wo_a: z[t,g,:] = o[t, heads of g, :] * weight[g]^T; group g = H/groups consecutive heads.
 * In FP8 each group is a projection of codes, with inputs that inverse_rope has quantised and
 * blocks of 128 x 128 that begin anew in every group; where out is no multiple of 128 the last ones
 * have fewer rows. */
typedef struct as_grouped_linear_params {
  as_params_head head;
  as_tensor x;            /* in  bf16 [T,groups,in]   (in = H/groups * D); or u8 codes */
  as_tensor weight;       /* in  bf16 [groups,out,in]; or u8 codes, in a multiple of 128 */
  as_tensor y;            /* out bf16 [T,groups,out] */
  as_tensor weight_scale; /* in  f32 [groups,ceil(out/128),in/128] of codes; absent with bf16 */
  as_tensor x_scale;      /* in  f32 [T,groups,in/128] of codes; absent with bf16 */
} as_grouped_linear_params;

/* residual: out = bf16(h + y). out may alias h. */
typedef struct as_residual_params {
  as_params_head head;
  as_tensor h;   /* in  bf16 [T,hidden] */
  as_tensor y;   /* in  bf16 [T,hidden] */
  as_tensor out; /* out bf16 [T,hidden] */
} as_residual_params;

#ifdef __cplusplus
}
#endif

#endif
