/* Params of the ops around the latent cache: q norm + RoPE + insert, sparse attention, inverse
 * RoPE.
 *
 * RoPE (as_rope): pair i is dims (D-64+2i, D-64+2i+1), angle a = t * f_i:
 *   e' = e cos - o sin,  o' = e sin + o cos; the inverse negates sin. */
#ifndef ATTNSCOPE_KERNELS_PARAMS_ATTENTION_PARAMS_H
#define ATTNSCOPE_KERNELS_PARAMS_ATTENTION_PARAMS_H

#include "kernels/params/head.h"
#include "kernels/params/numeric_rules.h"

#ifdef __cplusplus
extern "C" {
#endif

/* q_rope_kv_insert:
 *   q[t,h]  = bf16(rope(q_raw[t,h] * rsqrt(mean(q_raw[t,h]^2) + eps)))  fp32 inside, no weight;
 *             q_norm (as_q_norm) may round before RoPE
 *   kv_row[t] = kv[t] with dims 448.. = bf16(rope(kv[t]))               the row before quantisation
 *   cache row slots[t] = quantise(kv_row[t])                            nothing for slot -1
 * Quantise (latent record): per 64 of the 448 no-RoPE dims: a = max(max|x|, 1e-4),
 * e = ceil(log2(a / 448)), byte clamp(e + 127, 0, 255), code e4m3fn_rne_sat(x * 2^-e); pad byte 0;
 * scale_floor (as_scale_floor) may put another number in the place of 1e-4;
 * dims 448.. bf16 as they are. NaN counts nothing in max|x| and has code 0x7f, whatever its sign.
 * rows_given: kv_row is an input, only the quantise-and-insert part runs (q, q_raw, kv unused). */
typedef struct as_q_rope_kv_insert_params {
  as_params_head head;
  as_tensor q_raw;     /* in  bf16 [T,H,D] */
  as_tensor kv;        /* in  bf16 [T,D] */
  as_tensor positions; /* in  i64 [T] */
  as_rope rope;        /* in  the layer's rotary embedding */
  as_tensor slots;     /* in  i64 [T] */
  as_tensor q;         /* out bf16 [T,H,D] */
  as_tensor kv_row;    /* out bf16 [T,D], optional */
  as_cache cache;      /* out latent rows */
  double eps;
  int32_t rows_given;
  int32_t q_norm;      /* as_q_norm */
  int32_t scale_floor; /* as_scale_floor */
  int32_t reserved;
} as_q_rope_kv_insert_params;

/* sparse_attention: token t, head h, over the window rows and (C4A, C128A) the extra rows:
 *   l_i = scale * q . kv_i;  o = sum e^l_i kv_i / (sum e^l_i + e^sink_h);  K and V are one row.
 *   lse = ln sum e^l_i over real entries, WITHOUT the sink.
 * Entry k of a list is valid iff k < topk_length[t] and index >= 0; nothing else is ever read.
 * No valid entry: o = 0, lse = +inf. sink -inf: no effect; +inf: o = 0. NaN in unused rows never
 * leaks. Output is rounded to bf16 once. Decode and prefill rows are the same op.
 *
 * prefill: of tokens that attend over rows gathered before, the chunk whose workspace they lie in
 * and the part of it that their request has; neighbours with the same numbers are of one request.
 * A part has `width` rows from part * width on: those of extra_cache that its tokens list, from
 * `compressed` on those of cache, both numbers the largest that a part of the chunk needs. A
 * token's list is [extra | window] then. The result is the same but for the order of sums;
 * references, which see no pages, do not look at it. */
typedef struct as_sparse_attention_params {
  as_params_head head;
  as_tensor q;                 /* in  bf16 [T,H,D] */
  as_cache cache;              /* in  latent rows, SWA */
  as_tensor indices;           /* in  i32 [T,W] slots */
  as_tensor topk_length;       /* in  i32 [T] */
  as_cache extra_cache;        /* in  latent rows, compressed; record NONE when absent */
  as_tensor extra_indices;     /* in  i32 [T,K] slots, optional */
  as_tensor extra_topk_length; /* in  i32 [T], optional */
  as_tensor sinks;             /* in  f32 [H] */
  as_tensor o;                 /* out bf16 [T,H,D] */
  as_tensor lse;               /* out f32 [T,H] */
  double scale;                /* D^-0.5 */
  as_tensor prefill;           /* in  i32 [T,2] chunk and part, -1 = none; optional */
} as_sparse_attention_params;

/* inverse_rope: rotates dims D-64.. of every head by -t * f_i; fp32 inside, one rounding to bf16;
 * the other dims are copied.
 * With codes the result is quantised, for a wo_a in FP8: per token and 128 dims of a head, D being
 * a multiple of them,
 *   scale = 2^ceil(log2(max(amax, floor) / 448)), code = e4m3fn_rne_sat(x / scale)
 * with the floor that scale_floor (as_scale_floor) says; out may be absent then, and row, which is
 * there with codes alone, is what is quantised. rows_given: row is an input, only the quantisation
 * runs (o, positions unused). */
typedef struct as_inverse_rope_params {
  as_params_head head;
  as_tensor o;         /* in  bf16 [T,H,D] */
  as_tensor positions; /* in  i64 [T] */
  as_rope rope;        /* in  the layer's rotary embedding */
  as_tensor out;       /* out bf16 [T,H,D] */
  as_tensor row;       /* out bf16 [T,H,D], optional */
  as_tensor codes;     /* out u8 [T,H,D]; absent = nothing is quantised */
  as_tensor scales;    /* out f32 [T,H,D/128]; with codes */
  int32_t rows_given;
  int32_t scale_floor; /* as_scale_floor */
} as_inverse_rope_params;

#ifdef __cplusplus
}
#endif

#endif
