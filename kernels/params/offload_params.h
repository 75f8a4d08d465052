/* Params of the op around attention whose rows lie in host memory, behind a pool of rows on the
 * device (engine/offload/). T tokens, K places of a list, M rows moved. */
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

#ifdef __cplusplus
}
#endif

#endif
