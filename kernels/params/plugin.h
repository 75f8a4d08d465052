/* What a shared library exports to put its own kernels in the place of ours: one function that
 * returns a lane. Ops that the lane does not have are left to others.
 *
 *   #include <attnscope_plugin.h>
 *   static int32_t my_residual(const void* params, const as_call* call, as_error* err) { .. }
 *   static const as_lane lane = {sizeof(as_lane), AS_LANE_VERSION, "mine", "One sentence.",
 *                                {[AS_OP_RESIDUAL] = my_residual}};
 *   AS_PLUGIN_EXPORT const as_lane* attnscope_lane(void) { return &lane; }
 *
 * The name is a word: letters, digits, _ . - (then --lane plugin:NAME). All tensors lie on the host
 * (device 0); as_call::threads may be NULL. */
#ifndef ATTNSCOPE_KERNELS_PARAMS_PLUGIN_H
#define ATTNSCOPE_KERNELS_PARAMS_PLUGIN_H

#include "kernels/params/lane.h"

#ifdef __cplusplus
#define AS_PLUGIN_EXPORT extern "C" __attribute__((visibility("default")))
#else
#define AS_PLUGIN_EXPORT __attribute__((visibility("default")))
#endif

#define AS_PLUGIN_SYMBOL "attnscope_lane"

/* The type of that function. */
typedef const as_lane* (*as_plugin_fn)(void);

#endif
