/* What a shared library exports to put its own kernels in the place of ours: one function that
 * returns a lane. Ops that the lane does not have are left to others.
 *
 *   #include <attnscope_plugin.h>
 *   static int32_t my_residual(const void* params, const as_call* call, as_error* err) { .. }
 *   static const as_lane lane = {sizeof(as_lane), AS_LANE_VERSION, "mine", "One sentence.",
 *                                {[AS_OP_RESIDUAL] = my_residual}};
 *   AS_PLUGIN_EXPORT const as_lane* attnscope_lane(void) { return &lane; }
 *
 * The name is a word: letters, digits, _ . - (then --lane plugin:NAME). as_call::threads may be
 * NULL. Tensors lie on the host (device 0), or for ops that a second function names on the GPU:
 *
 *   static const as_plugin_device gpu = {sizeof(as_plugin_device), AS_PLUGIN_DEVICE_VERSION,
 *                                        {[AS_OP_RESIDUAL] = 1}};
 *   AS_PLUGIN_EXPORT const as_plugin_device* attnscope_device(void) { return &gpu; }
 */
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

/* Ops whose tensors, caches and rotary tables all lie on the GPU (device 1), at least 256 bytes
 * aligned. What the op puts on as_call::stream, or on the default stream, is waited for after it
 * returns; its time is that between two events around it. A library without the function has no
 * such op. */
typedef struct as_plugin_device {
  uint32_t struct_size;
  uint32_t version; /* AS_PLUGIN_DEVICE_VERSION */
  uint8_t ops[AS_OP_COUNT];
} as_plugin_device;

#define AS_PLUGIN_DEVICE_VERSION 1u
#define AS_PLUGIN_DEVICE_SYMBOL "attnscope_device"
typedef const as_plugin_device* (*as_plugin_device_fn)(void);

#endif
