/* Params of the ops of dense attention (MHA, GQA, MQA): rotary embedding with insertion into K and
 * V caches, attention over their pages, the batch that attention in chunks is of, and attention
 * without caches.
 *
 * Letters: T tokens, H query heads, G KV heads (H a multiple of G), D head size of queries and
 * keys, V head size of values, R requests, C columns of a block table.
 *
 * K and V are caches of their own, with G heads in data.reserved: width G*D and G*V. Their records,
 * [rows][heads] or [heads][rows] in a page, may be different ones. What a record stores of the
 * numbers x of a row and head (the bf16 row before quantisation), every operation in fp32 and
 * rounded once to nearest, ties to even:
 *   - bf16: x
 *   - f16: x, beyond 65504 infinite
 *   - fp8_, e5m2_tensor: code(x / s), s = scale[0], beside the cache (k_scale, v_scale): f32 [1]
 *   - fp8_, e5m2_head: code(x / s), s = scale[g]: f32 [G]
 *   - fp8_, e5m2_token_head: code(x / s), s = max(max|x| / M, 2^-126), as fp32 behind the row's
 *     codes; M is 448 of e4m3, 57344 of e5m2
 *   - int8_token_head: clamp(rint(x / s) + z, -128, 127) with h = max(0, max x), l = min(0, min x),
 *     s = max(h / 255 - l / 255, 2^-126), z = -128 - rint(l / s); s and z, as fp32, behind the
 *     row's codes
 *
 * Codes saturate: e4m3fn has no infinities, and what is beyond 448, infinities too, becomes 448 of
 * its sign; e5m2 likewise 57344. NaN is 0x7f. Where s is computed, a head with a NaN or an infinity
 * has s NaN (0x7fc00000), z 0 and codes 0. A value is read as code * s, of int8 as (code - z) * s.
 * Scales beside a cache are finite and above 0; other records have none there.
 *
 * The first tokens of a request in 16 bits: of its first wide_tokens positions rows also lie in two
 * caches of bf16 or f16 (k_wide, v_wide), with a block table of their own (wide_table) that ends
 * with these positions, in pages of any number of rows; attention takes these rows from there and
 * all others from k_cache and v_cache. The rows in k_cache and v_cache are written all the same:
 * pages of one table stay alike and full, a lane that knows no wide rows has all rows in one
 * format, and what this costs is min(length, wide_tokens) rows of codes a request. Side caches
 * instead of wide pages in the same cache, since a page has one row size: a cache whose pages all
 * had room for 16 bits would save nothing. */
#ifndef ATTNSCOPE_KERNELS_PARAMS_PAGED_PARAMS_H
#define ATTNSCOPE_KERNELS_PARAMS_PAGED_PARAMS_H

#include "kernels/params/head.h"
#include "kernels/params/mask_code.h"
#include "kernels/params/numeric_rules.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which dims of a head are turned together; N = dims that are rotated, the first ones of a head. */
typedef enum as_rope_style {
  AS_ROPE_NEOX = 0, /* halves: dims i and i + N/2 */
  AS_ROPE_GPTJ = 1  /* pairs: dims 2i and 2i + 1 */
} as_rope_style;

/* rope_kv_insert: of each token and head
 *   n = x * rsqrt(mean(x^2) + eps) * (weight_plus_one + w)   where the weight is there; else x
 *   q_out[t,h] = bf16(rope(n of q)), k_row[t,g] = bf16(rope(n of k))
 *   row slots[t] of k_cache = k_row[t], of v_cache = v[t], as records store; slots[t] < 0: none
 *   row wide_slots[t] of k_wide and v_wide likewise
 * rope, with c = cos and s = sin of the pair's number i < N/2 in table row positions[t]:
 *   a' = a c - b s,  b' = b c + a s
 * N is the width of the table, [max_pos,N], cos (N/2) then sin (N/2): even, at most D; the other
 * dims stay. Without a table and with base 0 nothing turns (N = 0); with a base references compute
 * the table, for D dims, without YaRN. fp32 inside, one rounding to bf16. rows_given: k_row is an
 * input, only the insertion runs. Without k and v (rank 0) only q_out is made, of a layer that
 * reads another layer's caches: slots and caches are not looked at. */
typedef struct as_rope_kv_insert_params {
  as_params_head head;
  as_tensor q;         /* in  bf16 [T,H,D], optional: with q_out */
  as_tensor k;         /* in  bf16 [T,G,D], optional: with v */
  as_tensor v;         /* in  bf16 [T,G,V], optional: with k or k_row */
  as_tensor q_weight;  /* in  bf16 [D] of the norm, optional */
  as_tensor k_weight;  /* in  bf16 [D], optional */
  as_tensor positions; /* in  i64 [T] */
  as_rope rope;        /* in  the layer's rotary embedding */
  as_tensor slots;     /* in  i64 [T], optional: with v */
  as_tensor q_out;     /* out bf16 [T,H,D], optional */
  as_tensor k_row;     /* out bf16 [T,G,D], optional */
  as_cache k_cache;    /* out rows of G heads of D */
  as_cache v_cache;    /* out rows of G heads of V */
  double eps;
  int32_t style;           /* as_rope_style */
  int32_t weight_plus_one; /* 0 or 1 */
  int32_t rows_given;
  int32_t reserved;
  as_tensor k_scale;    /* in  f32 [1] or [G], optional: as the record of k_cache asks */
  as_tensor v_scale;    /* in  f32 [1] or [G], optional: likewise of v_cache */
  as_tensor wide_slots; /* in  i64 [T], optional: rows of k_wide and v_wide, negative = none */
  as_cache k_wide;      /* out bf16 or f16 rows of G heads of D, with wide_slots */
  as_cache v_wide;      /* out bf16 or f16 rows of G heads of V, with wide_slots */
} as_rope_kv_insert_params;

/* Whether a call makes queries and no rows. */
static inline int as_queries_alone(const as_rope_kv_insert_params* p) {
  return p->rows_given == 0 && p->k.rank == 0 && p->v.rank == 0;
}

/* local_batch: a step cut at the borders of chunks, so that attention in chunks of `chunk` tokens
 * is causal attention over a batch of shorter sequences. Letters: S groups of caches, P = chunk /
 * block_size blocks of a chunk, L local sequences.
 *   position of token i of request r: p = seq_lens[r] - (query_start_loc[r + 1] -
 *   query_start_loc[r]) + i; the tokens of a request with the same k = p / chunk are one sequence
 * Sequences in the order of their tokens. Of sequence l, chunk k of request r:
 *   token_to_seq[t] = l, local_positions[t] = p - k * chunk for its tokens
 *   local_query_start_loc[l] = its first token in the step
 *   local_seq_lens[l] = min(seq_lens[r] - k * chunk, chunk): rows from the chunk's first one on
 *   local_tables[s,l,c] = tables[s,r,k * P + c] where c * block_size < local_seq_lens[l], else -1
 * There are at most as many sequences as tokens; rows behind the last one: local_seq_lens 0,
 * local_tables -1, local_query_start_loc the number of tokens. Padding (token_to_req negative):
 * token_to_seq -1, local_positions 0. A chunk is whole blocks: chunk is a multiple of
 * block_size. */
typedef struct as_local_batch_params {
  as_params_head head;
  as_tensor tables;                /* in  i32 [S,R,C] of the groups with chunks */
  as_tensor query_start_loc;       /* in  i32 [R+1] first token of each request */
  as_tensor seq_lens;              /* in  i32 [R] rows that a request has after this step */
  as_tensor token_to_req;          /* in  i32 [T] row of the tables, negative = padding */
  as_tensor token_to_seq;          /* out i32 [T] */
  as_tensor local_positions;       /* out i64 [T] */
  as_tensor local_query_start_loc; /* out i32 [T+1] */
  as_tensor local_seq_lens;        /* out i32 [T] */
  as_tensor local_tables;          /* out i32 [S,T,P] */
  int32_t chunk;
  int32_t block_size; /* tokens of a block */
} as_local_batch_params;

/* position_bias of attention, as T5 has it: a learned number a head for N buckets of distances. Of
 * d = key - query:
 *   - n and a: where attention is causal n = N and a = max(-d, 0); else n = N / 2 and a = |d|, and
 *     keys behind the query, d > 0, have the second half of the buckets (n added)
 *   - bucket, with e = n / 2: a where a < e; else
 *     min(n - 1, e + floor((n - e) ln(a / e) / ln(M / e)))
 *   - e < M; N is even, at least 4, where attention is not causal, else at least 2. */
static inline int as_bias_buckets_fit(int64_t buckets, int32_t distance, int32_t causal) {
  const int64_t side = causal != 0 ? buckets : buckets / 2;
  return side >= 2 && (causal != 0 || buckets % 2 == 0) && distance > side / 2;
}

/* cross_batch: which tokens of a step are source, seen by an encoder and by cross attention, and
 * which are the decoder's. The first source_lens[r] positions of request r are its source.
 *   source_to_req[t] = r, source_slots[t] = slots[group,t]   where positions[t] < source_lens[r]
 *   target_to_req[t] = r, target_slots[t] = slots[group,t]   of the others
 * and -1 where a token is of the other kind, or padding (token_to_req negative). */
typedef struct as_cross_batch_params {
  as_params_head head;
  as_tensor positions;     /* in  i64 [T] */
  as_tensor token_to_req;  /* in  i32 [T] */
  as_tensor source_lens;   /* in  i32 [R] */
  as_tensor slots;         /* in  i64 [G,T] */
  as_tensor source_to_req; /* out i32 [T] */
  as_tensor target_to_req; /* out i32 [T] */
  as_tensor source_slots;  /* out i64 [T] */
  as_tensor target_slots;  /* out i64 [T] */
  int32_t group;           /* row of slots */
  int32_t reserved;
} as_cross_batch_params;

/* paged_attention: token t at position p of request r, head h, KV head g = h / (H/G), over the rows
 * first .. end - 1 of its request:
 *   end   = causal ? min(p + 1, seq_lens[r]) : seq_lens[r]
 *   first = window > 0 ? max(0, p - window + 1) : 0     the window counts the token's own row; with
 *                                                      (left, right) windows left is window - 1
 *           chunk > 0: not before p / chunk * chunk   the chunk that p lies in
 *           first_rows: not before first_rows[r]
 *   l_i = scale * q . k_i;  with soft_cap > 0: l_i = soft_cap * tanh(l_i / soft_cap)
 *   with alibi_slopes: l_i = l_i - alibi_slopes[h] * |p - i|  (behind scale and cap)
 *   with position_bias: l_i = l_i + position_bias[bucket(i - p)][h]  (behind these)
 *   with mask_code (mask_code.h): of these rows those of which the mask is true; with score_code
 *   l_i = score_code of l_i behind all of the above, in fp32; q_idx is p, kv_idx i, request r
 *   Where a call numbers tokens and rows otherwise than a mask means them, in chunks and across:
 *     q_idx = p + d - query_starts[r], kv_idx = i + d - row_starts[r], d = places[t] - p
 *   Of the three one that is absent takes nothing off, or moves nothing.
 *   o = sum e^l_i v_i / (sum e^l_i + e^sink_h), without sinks no such term
 *   lse = ln sum e^l_i, WITHOUT the sink
 * No row, and padding (token_to_req negative): o = 0, lse = -inf. A window or a chunk needs causal.
 * sink -inf: no effect; +inf: o = 0. Output is rounded to bf16 once. NaN in rows that a token does
 * not see never reaches it. Decode and chunked prefill rows are the same op; rows of a request in
 * any order. num_splits: the context of a request is cut into so many parts, each attended on its
 * own, their results merged by LSE; 0 = as the lane likes. It changes nothing but rounding, nor
 * does form. A cascade needs causal, and has no window, chunk, first_rows and mask_code. Rows of
 * positions below wide_tokens are those of k_wide and v_wide, through wide_table; there is no chunk
 * beside them, whose positions begin anew. */
typedef struct as_paged_attention_params {
  as_params_head head;
  as_tensor q;            /* in  bf16 [T,H,D] */
  as_cache k_cache;       /* in  rows of G heads of D */
  as_cache v_cache;       /* in  rows of G heads of V */
  as_tensor table;        /* in  i32 [R,C] of both caches */
  as_tensor token_to_req; /* in  i32 [T] row of the table, negative = padding */
  as_tensor positions;    /* in  i64 [T] */
  as_tensor seq_lens;     /* in  i32 [R] rows that a request has after this step */
  as_tensor sinks;        /* in  f32 [H], optional */
  as_tensor o;            /* out bf16 [T,H,V] */
  as_tensor lse;          /* out f32 [T,H] */
  double scale;           /* mostly D^-0.5 */
  double soft_cap;        /* 0 = none */
  int32_t causal;         /* 0: every token sees all rows of its request */
  int32_t window;         /* 0: no window */
  int32_t num_splits;
  int32_t form;            /* as_paged_form */
  int32_t chunk;           /* 0: no chunks, also where the call is of sequences that end with theirs
                              (local_batch) */
  int32_t bias_distance;   /* with position_bias: M */
  as_tensor alibi_slopes;  /* in  f32 [H], optional: finite */
  as_tensor first_rows;    /* in  i32 [R], optional */
  as_tensor position_bias; /* in  f32 [N,H], optional: finite */
  as_tensor mask_code;     /* in  f64 [I,2], optional */
  as_tensor score_code;    /* in  f64 [J,2], optional */
  as_tensor k_scale;       /* in  f32 [1] or [G], optional: as the record of k_cache asks */
  as_tensor v_scale;       /* in  f32 [1] or [G], optional: likewise of v_cache */
  as_tensor places;        /* in  i64 [T], optional: of tokens, as masks and scores mean them */
  as_tensor query_starts;  /* in  i32 [R], optional: where places of tokens begin */
  as_tensor row_starts;    /* in  i32 [R], optional: and of rows */
  as_cache k_wide;         /* in  bf16 or f16 rows of G heads of D, with wide_tokens */
  as_cache v_wide;         /* in  bf16 or f16 rows of G heads of V, with wide_tokens */
  as_tensor wide_table;    /* in  i32 [R,C'] of both, optional: with wide_tokens */
  int32_t wide_tokens;     /* rows below it come from k_wide and v_wide, by position; 0 = none */
  int32_t reserved;
} as_paged_attention_params;

/* varlen_attention: attention of packed sequences, without a cache. Letters: T queries, S keys, N
 * sequences. Sequence n has queries cu_seqlens[n] .. cu_seqlens[n + 1] - 1 and keys and values
 * cu_seqlens_k[n] .. cu_seqlens_k[n + 1] - 1, or those of cu_seqlens where cu_seqlens_k is absent.
 * Query i of Q, over S keys, stands at place p = S - Q + i: the last query beside the last key. It
 * sees keys first .. end - 1:
 *   end   = S;  causal: at most p + 1;  window_right >= 0: at most p + window_right + 1
 *   first = 0;  window_left >= 0: at least p - window_left
 *   l_j = scale * q . k_j;  with soft_cap > 0: l_j = soft_cap * tanh(l_j / soft_cap)
 *   with alibi_slopes: l_j = l_j - alibi_slopes[h] * |p - j|
 *   with position_bias: l_j = l_j + position_bias[bucket(j - p)][h]
 *   o = sum e^l_j v_j / sum e^l_j,  lse = ln sum e^l_j
 * With token_to_req, which needs cu_seqlens_k absent, a sequence ends with its first token that has
 * a negative number there: that one and those behind it are padding.
 * Windows count keys beside the query's own one, which is in them always; -1 = no limit. With
 * mask_code (mask_code.h) a query sees of these keys those of which the mask is true, with
 * score_code l_j = score_code of l_j behind all of the above, rounded to fp32; q_idx is p, kv_idx
 * j, request n. tiles: the block mask of mask_code, [n,0 or h,block of queries,tile of keys], of as
 * many blocks and tiles as the longest sequence has; it changes no byte, since empty tiles are left
 * out and full ones need not be asked, and must be right. A query without keys, padding, and tokens
 * behind the last sequence: o = 0, lse = -inf. A sequence may be empty. Output is rounded to bf16
 * once. NaN in rows that a query does not see never reaches it. */
typedef struct as_varlen_attention_params {
  as_params_head head;
  as_tensor q;             /* in  bf16 [T,H,D] */
  as_tensor k;             /* in  bf16 [S,G,D] */
  as_tensor v;             /* in  bf16 [S,G,V] */
  as_tensor cu_seqlens;    /* in  i32 [N+1] ascending from 0 */
  as_tensor cu_seqlens_k;  /* in  i32 [N+1], optional */
  as_tensor alibi_slopes;  /* in  f32 [H], optional: finite */
  as_tensor o;             /* out bf16 [T,H,V] */
  as_tensor lse;           /* out f32 [T,H] */
  double scale;            /* mostly D^-0.5 */
  double soft_cap;         /* 0 = none */
  int32_t causal;          /* 0 or 1 */
  int32_t window_left;     /* keys before the query's own, -1 = all */
  int32_t window_right;    /* keys behind it, -1 = all */
  int32_t bias_distance;   /* with position_bias: M */
  as_tensor mask_code;     /* in  f64 [I,2], optional */
  as_tensor score_code;    /* in  f64 [J,2], optional */
  as_tensor tiles;         /* in  u8 [N,1 or H,B,K], as_mask_tile, optional: with mask_code */
  as_tensor token_to_req;  /* in  i32 [T], optional */
  as_tensor position_bias; /* in  f32 [N,H], optional: finite */
} as_varlen_attention_params;

#define AS_MAX_HEAD_SIZE 512 /* of these ops, keys or values */

#ifdef __cplusplus
}
#endif

#endif
