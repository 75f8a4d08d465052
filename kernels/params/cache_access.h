/* Which rows of its caches an op reads and writes, as data. What looks at rows (checks of what a
 * reader will find, copies for references, staging, cases) walks them by RowAccess of row_access.h
 * and knows no op.
 *
 * Adding an op that has a cache = one entry for each cache of its params struct. */
#ifndef ATTNSCOPE_KERNELS_PARAMS_CACHE_ACCESS_H
#define ATTNSCOPE_KERNELS_PARAMS_CACHE_ACCESS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the tensor `rows` of an access is, and which rows it names.
 *
 * Row p of request r lies, by a block table, in slot
 * table[r][p / rows_per_block] * rows_per_block + p % rows_per_block. */
typedef enum as_rows_by {
  AS_BY_SLOTS = 0,  /* i64 [T]: the slot of token t, negative = none */
  AS_BY_LIST = 1,   /* i32 [T,K]: slots; of token t the first lens[t], negative = none */
  AS_BY_TABLE = 2,  /* i32 [R,C]: token t sees rows 0 .. lens[t] - 1 of its request */
  AS_BY_WINDOW = 3, /* i32 [R,C]: token t at position p sees rows p - window + 1 .. p */
  /* i32 [R,C]: token t at position p of request r sees the rows of its request below lens[r]; where
   * `causal` is not 0, or the op has no such number, none behind p; where `window` is above 0, none
   * before p - window + 1; where `chunk` is, none before p / chunk * chunk; where the tensor
   * `first` is there, none before first[r] */
  AS_BY_CONTEXT = 4
} as_rows_by;

/* What a cache of a layer is for. */
typedef enum as_cache_role {
  AS_CACHE_ANY = 0, /* whatever cache the op is given */
  AS_CACHE_KV = 1,  /* rows that are key and value at once, or hold both */
  AS_CACHE_K = 2,
  AS_CACHE_V = 3,
  AS_CACHE_INDEX = 4, /* keys that entries are selected by */
  AS_CACHE_STATE = 5, /* what entries of another cache will be made of */
  AS_CACHE_ROLES = 6
} as_cache_role;

/* Offsets are those of the params struct; 0 = the access has no such field. */
typedef struct as_cache_access {
  uint16_t cache;        /* as_cache, a tap of the op table */
  uint8_t direction;     /* as_tap_direction: AS_TAP_IN reads, AS_TAP_OUT writes */
  uint8_t by;            /* as_rows_by */
  uint16_t rows;         /* as_tensor: slots, list or block table */
  uint16_t lens;         /* list, table: as_tensor i32 [T]; context: i32 [R] */
  uint16_t token_to_req; /* by a block table: as_tensor i32 [T] row of it, negative = padding */
  uint16_t positions;    /* window, context: as_tensor i64 [T] */
  uint16_t only;         /* window: as_tensor i64 [T]; tokens where it is negative see nothing */
  uint16_t window;       /* window, context: int32_t */
  uint16_t twice_at;     /* window: a number, not an offset; a window of it is twice as long */
  uint16_t unless;       /* int32_t; where it is not 0, no row is touched */
  uint8_t role;          /* as_cache_role */
  uint8_t nth;           /* which of the layer's caches of this role, in order of registration */
  uint16_t causal;       /* context: int32_t */
  uint16_t chunk;        /* context: int32_t */
  uint16_t first;        /* context: as_tensor i32 [R], may be absent from a call */
  uint16_t copies;       /* slots, written: as_tensor i64; row n becomes the one in this slot of the
                            same cache, whichever tokens there are */
  uint16_t from;         /* context: int32_t; no row below this number of its request is read */
  uint16_t until;        /* context: int32_t; none at or behind it */
} as_cache_access;

/* The accesses of an op, in the order of its taps; NULL and *count 0 where it has no
 * cache or there is no such op. */
const as_cache_access* as_cache_accesses(int32_t op, uint32_t* count);

#ifdef __cplusplus
}
#endif

#endif
