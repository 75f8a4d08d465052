/* The lane interface: how an implementation of an op is called and how it reports failure.
 *
 * A lane is a name and functions of ops: lane_table.h inside of this program, plugin.h for shared
 * libraries. All lanes of an op take the same params struct. A lane must not keep pointers from the
 * struct after it returns, must write only the tensors and caches that the op table lists as
 * outputs, and must give the same bytes for any number of threads. */
#ifndef ATTNSCOPE_KERNELS_PARAMS_LANE_H
#define ATTNSCOPE_KERNELS_PARAMS_LANE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/params/op_ids.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Status codes; the CLI uses the same numbers as exit codes. */
typedef enum as_status {
  AS_OK = 0,
  AS_MISMATCH = 1,       /* a comparison failed */
  AS_USAGE = 2,          /* wrong flag or argument */
  AS_BAD_INPUT = 3,      /* a file, tensor or value that cannot be used */
  AS_NO_ENVIRONMENT = 4, /* a device, library or display is missing */
  AS_INTERNAL = 5        /* a bug of ours */
} as_status;

typedef struct as_error {
  int32_t code;      /* as_status */
  char message[508]; /* what, where, what to do next; always terminated */
} as_error;

/* Runs body(ctx, begin, end) over disjoint ranges that cover [0, count). The split may depend on
 * the number of threads, so a body must compute every index independently of its neighbours. */
typedef void (*as_parallel_body)(void* ctx, int64_t begin, int64_t end);
typedef struct as_threads {
  void* pool;
  int32_t num_threads;
  int32_t reserved;
  void (*parallel_for)(void* pool, int64_t count, int64_t grain, as_parallel_body body, void* ctx);
} as_threads;

typedef struct as_call {
  uint32_t struct_size;      /* sizeof(as_call) */
  uint32_t flags;            /* reserved, 0 */
  void* stream;              /* CUDA stream, NULL for the default one and on the host */
  const as_threads* threads; /* NULL: run on the calling thread */
  void* host; /* host ops (schedule, block_tables): the engine object that carries them out */
  /* Not 0: all calls with this number read the same bytes where they read a weight, so that a copy
   * of it may be kept. */
  uint64_t weights;
} as_call;

/* Returns AS_OK, or a status with err filled in. Never throws. */
typedef int32_t (*as_op_fn)(const void* params, const as_call* call, as_error* err);

#ifdef __cplusplus
}
#endif

#endif
