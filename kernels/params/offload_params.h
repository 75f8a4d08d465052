/* Params of the ops that move rows or blocks between a device and host memory: around attention
 * whose rows lie there, behind a pool of rows on the device (engine/offload/), and where preempted
 * requests wait there. T tokens, K places of a list, M rows or blocks moved. */
#ifndef ATTNSCOPE_KERNELS_PARAMS_OFFLOAD_PARAMS_H
#define ATTNSCOPE_KERNELS_PARAMS_OFFLOAD_PARAMS_H

#include "kernels/params/head.h"

#ifdef __cplusplus
extern "C" {
#endif

/* exchange_rows: new rows go back to their pages, rows that are missed come into the pool, and
 * what was selected is found there:
 *   pages row pages_to[t] = fresh row fresh_from[t]      where both are >= 0
 *   pool row pool_to[m]   = missed row missed_from[m]    where both are >= 0, after the above
 *   slots[t,k] = places[t,k] where it is >= 0, else selected[t,k]
 * Rows are copied byte for byte. All four are one cache: fresh and pool its rows on the device,
 * pages and missed its pages, which may be pinned memory of the host. No row is written twice, and
 * none that comes back is one that a miss takes the place of. Which row lies where is decided
 * before; a place of -1 says that the token reads the pages themselves. */
typedef struct as_exchange_rows_params {
  as_params_head head;
  as_tensor selected;    /* in  i32 [T,K] slots of the pages, -1 = none */
  as_tensor places;      /* in  i32 [T,K] slots of the pool, -1 = none */
  as_tensor slots;       /* out i32 [T,K] */
  as_cache fresh;        /* in  */
  as_tensor fresh_from;  /* in  i64 [T] */
  as_cache pages;        /* out */
  as_tensor pages_to;    /* in  i64 [T] */
  as_cache missed;       /* in  */
  as_tensor missed_from; /* in  i64 [M] */
  as_cache pool;         /* out */
  as_tensor pool_to;     /* in  i64 [M] */
} as_exchange_rows_params;

/* A block as it is, whatever its rows are: pages of one row, whose values are its bytes. A slot is
 * the id of a block. */
enum { AS_BLOCK_RECORD = AS_RECORD_FP8_TENSOR };

/* swap_out: staged[m] = block from[m], zeros where from[m] is -1. */
typedef struct as_swap_out_params {
  as_params_head head;
  as_cache blocks;  /* in  AS_BLOCK_RECORD, one row a page; width: bytes of a block */
  as_tensor from;   /* in  i64 [M] ids of blocks, -1 = none */
  as_tensor staged; /* out u8 [M,bytes] */
} as_swap_out_params;

/* swap_in: block to[m] = staged[m], where to[m] is not -1. No block is written twice, and the
 * others stay as they are. */
typedef struct as_swap_in_params {
  as_params_head head;
  as_tensor staged; /* in  u8 [M,bytes] */
  as_tensor to;     /* in  i64 [M] ids of blocks, -1 = none */
  as_cache blocks;  /* out as those of swap_out */
} as_swap_in_params;

#ifdef __cplusplus
}
#endif

#endif
