/* Params of the ops that run once per step: scheduling, block tables, slots, index lists, and the
 * head after the layers.
 *
 * Letters: T tokens of the step, R live requests (running ones in order of admission, then waiting
 * ones in the order they are tried), G cache groups, C table columns, S SWA groups, W window, A
 * width of a C128A row, N rows to sample, V vocabulary. Tokens of one request are contiguous;
 * requests in list order. */
#ifndef ATTNSCOPE_KERNELS_PARAMS_STEP_PARAMS_H
#define ATTNSCOPE_KERNELS_PARAMS_STEP_PARAMS_H

#include <stdint.h>

#include "kernels/params/head.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The second number of a group's row in `groups`: how far back its tokens see. 0: all; a window;
 * below 0: a chunk of as many tokens; from INT32_MIN on, the first tokens of a request, which alone
 * have rows: INT32_MIN + n, n below 2^30. */
static inline int32_t as_reach_of_first(int32_t tokens) { return INT32_MIN + tokens; }
/* Of such a number: how many tokens of a request have rows; -1 = all. */
static inline int64_t as_first_with_rows(int32_t reach) {
  return reach < -(1 << 30) ? (int64_t)reach - INT32_MIN : -1;
}

/* schedule: which request advances by how many tokens, and from where. The host decides who joins,
 * who loses its blocks to whom, and what a newcomer finds computed (what it finds depends on all
 * that the cache ever held); chunks and positions follow from that:
 * 1. Running requests in order, while budget is left: n = min(num_tokens - num_before, budget
 *    left, longest_chunk where that is not 0). Then those whose lost_to names this row give back
 * what they were given in this step; a row that lost its blocks to itself ends this part.
 * num_computed = num_before.
 * 2. Newcomers in order: num_computed = matching where joins is 2, else the largest multiple of the
 *    blocks' least common multiple (or `alignment`, if not 0) up to min(matching, num_tokens - 1);
 *    n = min(num_tokens - num_computed, budget left, longest_chunk where that is not 0).
 * Rows that lost their blocks start anew: num_computed = num_scheduled_tokens = 0. All others:
 * num_scheduled_tokens = 0. Host op: `call->host` carries it out. */
typedef struct as_schedule_params {
  as_params_head head;
  as_tensor groups;       /* in  i32 [G,2] block_size, reach */
  as_tensor num_tokens;   /* in  i32 [R] prompt + sampled tokens + drafts */
  as_tensor num_before;   /* in  i32 [R] tokens whose rows are in the caches before this step */
  as_tensor running;      /* in  i32 [R] 1 = admitted before this step */
  as_tensor joins;        /* in  i32 [R] 1 = admitted by this step, 2: rows come back */
  as_tensor lost_to;      /* in  i32 [R] row it lost its blocks to, -1 = it did not */
  as_tensor matching;     /* in  i32 [R] of a newcomer: leading tokens equal, one by one, to those
                             behind the blocks that it found, or whose rows come back */
  as_tensor num_computed; /* out i32 [R] position of the first token of this step */
  as_tensor num_scheduled_tokens; /* out i32 [R] tokens of this step, 0 = none */
  int32_t token_budget;           /* tokens per step at most */
  int32_t alignment;              /* hits end at multiples of this; 0 = of all block sizes */
  int32_t longest_chunk;          /* tokens of a request in this step at most; 0 = no limit */
  int32_t reserved;
} as_schedule_params;

/* block_tables: the manager's tables become those that the other ops read. A row that goes on gets
 * its new entries behind the old ones, which stay as they are, also where the manager has dropped
 * them meanwhile (null there): no token reads these any more. A row that starts anew is
 * replaced. Rows without tokens keep what they had. counts = ceil((num_computed +
 * num_scheduled_tokens) / block_size), of tokens that have rows in the group, or what the row had,
 * where drafts needed more before. An
 * entry that a token of the step needs, at or behind max(0, num_computed - window + 1) /
 * block_size, or at or behind the block of the chunk that num_computed lies in, is not null in the
 * manager's table, and as before where the row goes on; else the reference gives -1. Host op:
 * `call->host` carries it out. */
typedef struct as_block_tables_params {
  as_params_head head;
  as_tensor groups;               /* in  i32 [G,2] */
  as_tensor num_computed;         /* in  i32 [R] */
  as_tensor num_scheduled_tokens; /* in  i32 [R] */
  as_tensor joins;                /* in  i32 [R] 1, 2 = starts anew */
  as_tensor blocks;               /* in  i32 [G,R,C] the manager's; 0 = null or beyond the end */
  as_tensor tables_before;        /* in  i32 [G,R,C] 0 = beyond the end */
  as_tensor counts_before;        /* in  i32 [G,R] entries held, dropped ones included */
  as_tensor tables;               /* out i32 [G,R,C] */
  as_tensor counts;               /* out i32 [G,R] */
} as_block_tables_params;

/* slot_mapping: slots[g][t] = tables[g][r][p / bs] * bs + p % bs, -1 where token_to_req[t] < 0
 * (padding), or where the token has no row in the group. Compressed slots, through the full (MLA)
 * group's table: for p + 1 divisible by r: c = p / r, table[c / rows] * rows + c % rows with rows =
 * block_size / r; else -1. c4_slots / c128_slots are absent when the model has no such layer.
 * seen_lens[t] = p + 1, the rows that a causal token sees, 0 = padding. */
typedef struct as_slot_mapping_params {
  as_params_head head;
  as_tensor groups;       /* in  i32 [G,2] */
  as_tensor tables;       /* in  i32 [G,R,C] */
  as_tensor positions;    /* in  i64 [T] */
  as_tensor token_to_req; /* in  i32 [T] row of tables, -1 = padding */
  as_tensor slots;        /* out i64 [G,T] */
  as_tensor c4_slots;     /* out i64 [T], optional */
  as_tensor c128_slots;   /* out i64 [T], optional */
  as_tensor c4_lens;      /* out i32 [T] visible C4 entries (p + 1) / 4, 0 = padding; optional */
  int32_t mla_group;      /* index of the full group, -1 = none */
  int32_t reserved;
  as_tensor seen_lens; /* out i32 [T], optional */
} as_slot_mapping_params;

/* swa_index: pos = seq_len - query_len + (i - query_start_loc); start = max(pos - W + 1, 0);
 * len = pos + 1 - start; index[k] = slot of start + k for k < len, else -1 (oldest first).
 * Padding tokens: len 0 and a row of -1. One list per SWA group. */
typedef struct as_swa_index_params {
  as_params_head head;
  as_tensor tables; /* in  i32 [S,R,C] tables of the SWA groups */
  as_tensor
      query_start_loc;    /* in  i32 [R+1] first token of each request; requests with none repeat */
  as_tensor seq_lens;     /* in  i32 [R] tokens known after this step */
  as_tensor token_to_req; /* in  i32 [T] */
  as_tensor indices;      /* out i32 [S,T,W] */
  as_tensor lens;         /* out i32 [T] */
  int32_t block_size;     /* tokens per SWA block */
  int32_t window;
} as_swa_index_params;

/* c128_index: n = (position + 1) / 128; slots of entries 0..n-1, then -1. A is
 * as_c128_index_width() of kernels/layout. Padding tokens: n = 0. */
typedef struct as_c128_index_params {
  as_params_head head;
  as_tensor table;        /* in  i32 [R,C] MLA group */
  as_tensor positions;    /* in  i64 [T] */
  as_tensor token_to_req; /* in  i32 [T] */
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
