/* Params of the helper ops: what serving code needs around the ops of the op table, called on its
 * own and no part of a step. Same conventions: a head, tensors, numbers.
 *
 * Letters: T tokens, H heads, D head dim, N rows, R sequences, C columns, P pages. */
#ifndef ATTNSCOPE_KERNELS_PARAMS_HELPER_PARAMS_H
#define ATTNSCOPE_KERNELS_PARAMS_HELPER_PARAMS_H

#include "kernels/params/head.h"

#ifdef __cplusplus
extern "C" {
#endif

/* merge_states: attention over two disjoint sets of entries as one.
 *   m = max(lse_a, lse_b);  w = base^(lse - m);  out = (w_a a + w_b b) / (w_a + w_b)
 *   lse = m + log_base(w_a + w_b)
 * A state whose lse is +inf or -inf is empty: it weighs nothing and its values are not looked at.
 * Both empty: out = 0, lse = +inf. NaN in an lse gives NaN. Inside fp32 or better, one rounding.
 * out may be a or b, lse may be lse_a or lse_b. */
typedef struct as_merge_states_params {
  as_params_head head;
  as_tensor a;     /* in  bf16 or f32 [T,H,D] */
  as_tensor lse_a; /* in  f32 [T,H] */
  as_tensor b;     /* in  as a */
  as_tensor lse_b; /* in  f32 [T,H] */
  as_tensor out;   /* out as a */
  as_tensor lse;   /* out f32 [T,H] */
  int32_t base_2;  /* 0: natural logarithms, 1: base 2 */
  int32_t reserved;
} as_merge_states_params;

/* gather_rows: out[n] = the values of cache row slots[n], zeros for slot -1. Every record of a
 * latent or index cache is exact in bf16 unless its scale lies outside bf16's range; state rows
 * are fp32. */
typedef struct as_gather_rows_params {
  as_params_head head;
  as_cache cache;  /* in  any record */
  as_tensor slots; /* in  i64 [N] */
  as_tensor out;   /* out bf16 or f32 [N,width]; f32 for state rows */
} as_gather_rows_params;

/* convert_rows: row slots[n] of `to` = row slots[n] of `from` in the format of `to`. Both hold keys
 * or values of G heads of one size, in records as rope_kv_insert stores (paged_params.h); pages may
 * have different sizes. Each number as it is read, code * s or (code - z) * s in fp32, rounded to
 * bf16 (NaN: 0x7fc0), then stored as a row of rope_kv_insert is; a NaN in f16 is 0x7e00. Slot -1:
 * none. No slot stands in the list twice, and `from` and `to` share no memory. */
typedef struct as_convert_rows_params {
  as_params_head head;
  as_cache from;        /* in  rows of G heads */
  as_cache to;          /* out as many heads of the same size */
  as_tensor slots;      /* in  i64 [N], of both caches */
  as_tensor from_scale; /* in  f32 [1] or [G], optional: as the record of from asks */
  as_tensor to_scale;   /* in  f32 [1] or [G], optional: likewise of to */
} as_convert_rows_params;

/* copy_blocks: block pairs[n][1] of `to` gets the bytes of block pairs[n][0] of `from`; with
 * `exchange` both get each other's. A negative id: the pair is skipped. No block may be written
 * twice, nor be read by one pair and written by another. Sides may lie on the host and on the GPU;
 * the CUDA lane wants the host's to be pinned. */
typedef struct as_copy_blocks_params {
  as_params_head head;
  as_tensor from;  /* in  u8 [B,bytes] blocks, out with exchange */
  as_tensor to;    /* out u8 [C,bytes] */
  as_tensor pairs; /* in  i64 [N,2] */
  int32_t exchange;
  int32_t reserved;
} as_copy_blocks_params;

/* workspace_attention: sparse_attention over rows that have been gathered and dequantised before,
 * one list a token. Sink, lengths, -1 and empty lists as in sparse_attention. */
typedef struct as_workspace_attention_params {
  as_params_head head;
  as_tensor q;           /* in  bf16 [T,H,D] */
  as_tensor rows;        /* in  bf16 [N,D] keys and values */
  as_tensor indices;     /* in  i32 [T,K] row numbers */
  as_tensor topk_length; /* in  i32 [T] */
  as_tensor sinks;       /* in  f32 [H] */
  as_tensor o;           /* out bf16 [T,H,D] */
  as_tensor lse;         /* out f32 [T,H] */
  double scale;
} as_workspace_attention_params;

/* inverse_rope_quantise: inverse_rope, its bf16 result quantised: per 128 dims of a head
 * scale = 2^ceil(log2(max(amax, 1e-4) / 448)), code = e4m3fn_rne_sat(x / scale). */
typedef struct as_inverse_rope_quantise_params {
  as_params_head head;
  as_tensor o;         /* in  bf16 [T,H,D], D a multiple of 128 */
  as_tensor positions; /* in  i64 [T] */
  as_rope rope;        /* in  the layer's rotary embedding */
  as_tensor codes;     /* out u8 [T,H,D] */
  as_tensor scales;    /* out f32 [T,H,D/128] */
} as_inverse_rope_quantise_params;

/* fp8_linear: y[t,o] = sum over blocks b of 128 inputs of
 *   x_scale[t,b] * weight_scale[o/128,b] * sum over i in b of x[t,i] * weight[o,i]
 * Products and sums in fp32, one rounding. */
typedef struct as_fp8_linear_params {
  as_params_head head;
  as_tensor x;            /* in  u8 e4m3 codes [T,in], in a multiple of 128 */
  as_tensor x_scale;      /* in  f32 [T,in/128] */
  as_tensor weight;       /* in  u8 e4m3 codes [out,in] */
  as_tensor weight_scale; /* in  f32 [ceil(out/128),in/128] */
  as_tensor y;            /* out bf16 or f32 [T,out] */
} as_fp8_linear_params;

/* sequence_table: the lists of a batch, from how many tokens each sequence has in it and before.
 *   cu_seqlens[0] = 0, cu_seqlens[r + 1] = cu_seqlens[r] + query_lens[r]
 *   seq_lens[r] = computed[r] + query_lens[r]
 *   blocks[r][c] = c while c * block_size < seq_lens[r], then -1
 *   token t of sequence r: token_to_seq = r, positions = computed[r] + t - cu_seqlens[r]
 * Behind the last token: -1 and 0. Sequences without tokens, such as those that pad a batch to the
 * size of a recorded graph, stand anywhere. */
typedef struct as_sequence_table_params {
  as_params_head head;
  as_tensor query_lens;   /* in  i32 [R] */
  as_tensor computed;     /* in  i32 [R] */
  as_tensor cu_seqlens;   /* out i32 [R+1] */
  as_tensor seq_lens;     /* out i32 [R] */
  as_tensor blocks;       /* out i32 [R,C] */
  as_tensor token_to_seq; /* out i32 [T], T at least the sum of query_lens */
  as_tensor positions;    /* out i64 [T] */
  int32_t block_size;
  int32_t reserved;
} as_sequence_table_params;

/* page_indices: the blocks of all sequences one after another.
 *   n[r] = ceil(seq_lens[r] / block_size), indptr[0] = 0, indptr[r + 1] = indptr[r] + n[r]
 *   indices[indptr[r] + c] = table[r][c] for c < n[r], -1 behind the last one
 *   last_page_len[r] = (seq_lens[r] - 1) mod block_size + 1, 0 for a sequence without rows. */
typedef struct as_page_indices_params {
  as_params_head head;
  as_tensor table;         /* in  i32 [R,C] */
  as_tensor seq_lens;      /* in  i32 [R] */
  as_tensor indptr;        /* out i32 [R+1] */
  as_tensor indices;       /* out i32 [P], P at least the sum of n */
  as_tensor last_page_len; /* out i32 [R] */
  int32_t block_size;
  int32_t reserved;
} as_page_indices_params;

/* compact_tables: the blocks that a table still has, in their order. Of the first lens[r] entries
 * of a row those that are negative or null_block are left out: what fell out of a window, say.
 *   compact[r][k] = table[r][columns[r][k]], columns ascending; both -1 from kept[r] on.
 * Row i of block k of the compact row is position columns[r][k] * block size + i. */
typedef struct as_compact_tables_params {
  as_params_head head;
  as_tensor table;    /* in  i32 [R,C] */
  as_tensor lens;     /* in  i32 [R] */
  as_tensor compact;  /* out i32 [R,C] */
  as_tensor columns;  /* out i32 [R,C] */
  as_tensor kept;     /* out i32 [R] */
  int32_t null_block; /* negative: only negative entries are holes */
  int32_t reserved;
} as_compact_tables_params;

/* pad_rows: rows of different length as a rectangle: rows[r][c] = values[starts[r] + c] for
 * c < starts[r + 1] - starts[r], else pad. Of indptr and indices it makes a block table. */
typedef struct as_pad_rows_params {
  as_params_head head;
  as_tensor values; /* in  i32 [N] */
  as_tensor starts; /* in  i32 [R+1] ascending, 0 to N */
  as_tensor rows;   /* out i32 [R,C] */
  int32_t pad;
  int32_t reserved;
} as_pad_rows_params;

#ifdef __cplusplus
}
#endif

#endif
