/* Params of the ops around the latent cache: q norm + RoPE + insert, the plan of sparse attention
 * and itself, inverse RoPE.
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

/* attention_plan: into which splits sparse_attention cuts the lists of each token, once a step for
 * each type of layer: Y = 0 with a window alone, 1 C4A, 2 C128A. A tile is 64 places of one list:
 *   tiles[t] = ceil(max(w, 1) / 64) + ceil(e / 64)   w window_lens[t], e of the type's other list:
 *              min(c4_lens[t], top_k), c128_lens[t]; lengths below 0 count as 0
 *   0 where w = e = 0: padding, which has no split, costs nothing and changes no other row
 * Splits follow one another by row, then by tile: split n of row t has the tiles begin .. end - 1.
 * rows[Y,t] = its first split and their number. splits[Y,n] = row, begin, end, part, place; -1
 * behind the last one. counts[Y] = splits in all, rows of more than one: what is to be combined.
 * part: which block of the grid works on it. place: where its partial result goes until these are
 * combined, numbered over all such splits; -1 = it is the whole row. A type whose lengths are
 * absent has no splits.
 *
 * AS_PLAN_FLASHMLA: P = max(1, multiprocessors / ceil(heads / 64)) parts, each with a budget of
 * ceil(sum of (tiles + 5) / P) + 5. A part takes rows in order: the rest of a row where its budget
 * holds the tiles left and 5 more, which it pays; else tiles for all but 5 of what is left of the
 * budget, and the row goes on in the next part. There are at most T + P splits, 2 P places.
 * AS_PLAN_OWN: with n rows that are no padding, L tiles in the longest, B = n * ceil(heads / 64):
 * the s from 1 to min(64, L) with s = 1 or B * s <= multiprocessors that costs least (of equal ones
 * the smallest): L * 16 for s = 1, else ceil(L / s) * 16 + 25 + floor(B * s / 2), in tenths of a
 * microsecond. Split j of a row is floor(tiles * j / s) .. floor(tiles * (j + 1) / s) - 1, left out
 * where that is none. part = n: every split is a block of the grid. */
typedef struct as_attention_plan_params {
  as_params_head head;
  as_tensor window_lens; /* in  i32 [T] */
  as_tensor c4_lens;     /* in  i32 [T] entries that a token may select from, optional */
  as_tensor c128_lens;   /* in  i32 [T] optional */
  as_tensor rows;        /* out i32 [3,T,2] */
  as_tensor splits;      /* out i32 [3,T+multiprocessors,5] by as_plan_column */
  as_tensor counts;      /* out i32 [3,2] */
  int32_t top_k;         /* entries that a token selects at most */
  int32_t heads;
  int32_t multiprocessors;
  int32_t rule; /* as_plan_rule, not AS_PLAN_NONE */
} as_attention_plan_params;

typedef enum as_plan_column {
  AS_PLAN_ROW = 0,
  AS_PLAN_BEGIN,
  AS_PLAN_END,
  AS_PLAN_PART,
  AS_PLAN_PLACE,
  AS_PLAN_COLUMNS
} as_plan_column;

/* Of the plan: its types of layers, entries of a tile, heads of a block of the grid. */
enum { AS_PLAN_TYPES = 3, AS_PLAN_TILE = 64, AS_PLAN_HEADS = 64 };

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
 * references, which see no pages, do not look at it.
 *
 * With a plan (both tensors, of the layer's type) the tiles of each split are summed up by
 * themselves, and a row's splits are combined in their order; it changes nothing but rounding.
 * Tiles that no split of their row has are not attended; a row without splits: o = 0, lse = +inf.
 * Tiles behind a row's last one are not there. place is below 2 * (N - T). */
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
  as_tensor plan_rows;         /* in  i32 [T,2] of attention_plan, optional */
  as_tensor plan_splits;       /* in  i32 [N,5] */
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
