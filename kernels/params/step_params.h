/* Params of the ops that run once per step: scheduling, block tables, slots, index lists, and the
 * head after the layers.
 *
 * Letters: T tokens of the step, R live requests (running first, then waiting, both in arrival
 * order), G cache groups, C table columns, S SWA groups, W window, A width of a C128A row,
 * N rows to sample, V vocabulary. Tokens of one request are contiguous; requests in list order. */
#ifndef ATTNSCOPE_KERNELS_PARAMS_STEP_PARAMS_H
#define ATTNSCOPE_KERNELS_PARAMS_STEP_PARAMS_H

#include "kernels/params/head.h"

#ifdef __cplusplus
extern "C" {
#endif

/* schedule: which request advances by how many tokens.
 * 1. Running requests in order: n = min(num_tokens - num_computed, budget left).
 * 2. Waiting requests in order, while budget is left and fewer than max_requests run: the head is
 *    admitted when its demand fits into what admitted requests have not reserved
 *    (sum of their demands + its demand <= usable_blocks); then n as above. Stop at the first that
 *    does not fit.
 * demand[r] = sum over groups of
 *    full group (window 0):  ceil(max_len / block_size)
 *    windowed group:         min(ceil(max_len / bs), ceil(min(window-1+token_budget,
 * max_len)/bs)+1) (the admission cap of the block manager). Host op: `call->host` carries it out.
 */
typedef struct as_schedule_params {
  as_params_head head;
  as_tensor groups;       /* in  i32 [G,2] block_size, window (0 = full) */
  as_tensor num_tokens;   /* in  i32 [R] tokens known: prompt + sampled */
  as_tensor num_computed; /* in  i32 [R] tokens whose rows are in the caches */
  as_tensor max_len;      /* in  i32 [R] prompt + max new tokens */
  as_tensor running;      /* in  i32 [R] 1 = admitted before this step */
  as_tensor demand;       /* out i32 [R] blocks the request may need at most */
  as_tensor scheduled;    /* out i32 [R] tokens of this step, 0 = none */
  int32_t token_budget;   /* tokens per step at most */
  int32_t max_requests;   /* running at once at most */
  int32_t usable_blocks;  /* pool size without the null block */
  int32_t reserved;
} as_schedule_params;

/* block_tables: for every scheduled request in list order: in every group drop what left the window
 * at P = num_computed, then in every group grow the table to ceil((P + n) / block_size).
 * drop: s = max(0, P - window + 1); entries below s / block_size become null (0), found from the
 *   newest downwards until a null; the freed ids go to the tail of the free list in that
 *   (descending) order. Full groups drop nothing.
 * grow: ids come from the front of the free list.
 * Host op: `call->host` carries it out. */
typedef struct as_block_tables_params {
  as_params_head head;
  as_tensor groups;        /* in  i32 [G,2] */
  as_tensor num_computed;  /* in  i32 [R] */
  as_tensor scheduled;     /* in  i32 [R] */
  as_tensor free_before;   /* in  i32 [F] free ids, front first */
  as_tensor tables_before; /* in  i32 [G,R,C] 0 = null or beyond the end */
  as_tensor counts_before; /* in  i32 [G,R] entries held, nulls included */
  as_tensor tables;        /* out i32 [G,R,C] */
  as_tensor counts;        /* out i32 [G,R] */
  as_tensor free_after;    /* out i32 [F2], F2 = what is left */
} as_block_tables_params;

/* slot_mapping: slots[g][t] = tables[g][r][p / bs] * bs + p % bs, -1 where request_of[t] < 0
 * (padding). Compressed slots, through the full (MLA) group's table: for p + 1 divisible by r:
 * c = p / r, table[c / rows] * rows + c % rows with rows = block_size / r; else -1.
 * c4_slots / c128_slots are absent when the model has no such layer. */
typedef struct as_slot_mapping_params {
  as_params_head head;
  as_tensor groups;     /* in  i32 [G,2] */
  as_tensor tables;     /* in  i32 [G,R,C] */
  as_tensor positions;  /* in  i64 [T] */
  as_tensor request_of; /* in  i32 [T] row of tables, -1 = padding */
  as_tensor slots;      /* out i64 [G,T] */
  as_tensor c4_slots;   /* out i64 [T], optional */
  as_tensor c128_slots; /* out i64 [T], optional */
  as_tensor c4_lens;    /* out i32 [T] visible C4 entries (p + 1) / 4, 0 = padding; optional */
  int32_t mla_group;    /* index of the full group, -1 = none */
  int32_t reserved;
} as_slot_mapping_params;

/* swa_index: pos = seq_len - query_len + (i - query_start); start = max(pos - W + 1, 0);
 * len = pos + 1 - start; index[k] = slot of start + k for k < len, else -1 (oldest first).
 * Padding tokens: len 0 and a row of -1. One list per SWA group. */
typedef struct as_swa_index_params {
  as_params_head head;
  as_tensor tables;      /* in  i32 [S,R,C] tables of the SWA groups */
  as_tensor query_start; /* in  i32 [R+1] first token of each request; requests with none repeat */
  as_tensor seq_lens;    /* in  i32 [R] tokens known after this step */
  as_tensor request_of;  /* in  i32 [T] */
  as_tensor indices;     /* out i32 [S,T,W] */
  as_tensor lens;        /* out i32 [T] */
  int32_t block_size;    /* tokens per SWA block */
  int32_t window;
} as_swa_index_params;

/* c128_index: n = (position + 1) / 128; slots of entries 0..n-1, then -1. A is
 * as_c128_index_width() of kernels/layout. Padding tokens: n = 0. */
typedef struct as_c128_index_params {
  as_params_head head;
  as_tensor table;        /* in  i32 [R,C] MLA group */
  as_tensor positions;    /* in  i64 [T] */
  as_tensor request_of;   /* in  i32 [T] */
  as_tensor indices;      /* out i32 [T,A] */
  as_tensor lens;         /* out i32 [T] */
  int32_t ratio;          /* 128 */
  int32_t rows_per_block; /* block_size / ratio */
} as_c128_index_params;

/* sample: greedy; the lowest id wins a tie. NaN logits never win; a row of NaN gives -1. */
typedef struct as_sample_params {
  as_params_head head;
  as_tensor logits; /* in  f32 [N,V] */
  as_tensor tokens; /* out i32 [N] */
} as_sample_params;

#ifdef __cplusplus
}
#endif

#endif
