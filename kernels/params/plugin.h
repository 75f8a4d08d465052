/* What a shared library exports to put its own kernels in the place of ours: one function that
 * returns a lane, a list of ops. Ops that it does not have are left to others.
 *
 *   #include <attnscope_plugin.h>
 *   static int32_t my_residual(const void* params, const as_call* call, as_error* err) { .. }
 *   static const as_lane_op ops[] = {AS_LANE_OP(AS_OP_RESIDUAL, as_residual_params, my_residual)};
 *   static const as_lane lane = AS_LANE("mine", "One sentence.", ops);
 *   AS_PLUGIN_EXPORT const as_lane* attnscope_lane(void) { return &lane; }
 *
 * The name is a word: letters, digits, _ . - (then --lane plugin:NAME). as_call::threads may be
 * NULL. Tensors lie on the host (device 0), those of an AS_LANE_OP_ON_GPU on the GPU.
 *
 * The library and the program may be built with headers of different age. Structs grow at their
 * end only, and zeros there mean what was so before: each side reads what both have. A library is
 * given params structs of the size that it says; it is refused a call that sets a field which its
 * struct lacks, and zeros stand in the fields that ours lacks. Ops that the program does not know
 * are not called. */
#ifndef ATTNSCOPE_KERNELS_PARAMS_PLUGIN_H
#define ATTNSCOPE_KERNELS_PARAMS_PLUGIN_H

#include "kernels/params/head.h"
#include "kernels/params/lane.h"
#include "kernels/params/op_ids.h"

#ifdef __cplusplus
#define AS_PLUGIN_EXPORT extern "C" __attribute__((visibility("default")))
#else
#define AS_PLUGIN_EXPORT __attribute__((visibility("default")))
#endif

typedef struct as_lane_op {
  int32_t id;           /* as_op_id */
  uint32_t version;     /* AS_PARAMS_VERSION */
  uint32_t params_size; /* sizeof the op's params struct */
  uint32_t on_device;   /* 1: see AS_LANE_OP_ON_GPU */
  as_op_fn run;
} as_lane_op;

/* S: the op's params struct, on the host. */
#define AS_LANE_OP(id, S, run) \
  { id, AS_PARAMS_VERSION, sizeof(S), 0, run }

/* Tensors, caches and rotary tables all lie on the GPU (device 1), at least 256 bytes aligned. What
 * the op puts on as_call::stream, or on the default stream, is waited for after it returns; its
 * time is that between two events around it. */
#define AS_LANE_OP_ON_GPU(id, S, run) \
  { id, AS_PARAMS_VERSION, sizeof(S), 1, run }

typedef struct as_lane {
  uint32_t struct_size;
  uint32_t version; /* AS_LANE_VERSION */
  const char* name;
  const char* description; /* one sentence */
  uint32_t num_ops;
  uint32_t op_size; /* sizeof(as_lane_op) */
  const as_lane_op* ops;
} as_lane;

/* 1 was a table with an entry for every op of its header, still read in libraries that are there.
 */
#define AS_LANE_VERSION 2u

/* ops: an array of as_lane_op. */
#define AS_LANE(name, description, ops)                                                  \
  {                                                                                      \
    sizeof(as_lane), AS_LANE_VERSION, name, description, sizeof(ops) / sizeof((ops)[0]), \
        sizeof(as_lane_op), ops                                                          \
  }

#define AS_PLUGIN_SYMBOL "attnscope_lane"

/* The type of that function. */
typedef const as_lane* (*as_plugin_fn)(void);

#endif
