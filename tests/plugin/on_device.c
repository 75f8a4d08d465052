/* A plugin whose residual takes tensors on the tests' device (shared_device.h), with one fault,
 * chosen when it is compiled: FAULT=NAME. Without a fault it is right. */
#include <attnscope_plugin.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "tests/plugin/bf16.h"

#define NONE 0
#define BREAKS_THE_DEVICE 1
#define LOOP 2
#define WRITE_BEHIND 3
#define WRITE_BEFORE 4
#define WRITE_INPUT 5
#define RETURN_ERROR 6
#define CRASH 7
#define TOUCH_BEYOND 8
#define OTHER_LIST 9
#define NOT_IN_LANE 10
#define VERSION_1 11

static volatile int forever = 1;

static int32_t residual(const void* params, const as_call* call, as_error* err) {
  const as_residual_params* p = (const as_residual_params*)params;
  uint16_t* out = (uint16_t*)p->out.data;
  const int64_t count = p->out.shape[0] * p->out.shape[1];
  int64_t i;
  if (p->h.device != 1 || p->y.device != 1 || p->out.device != 1 || call->stream == NULL) {
    strcpy(err->message, "a tensor lies on the host");
    return AS_BAD_INPUT;
  }
  for (i = 0; i < count; ++i) {
    out[i] = to_bf16(from_bf16(((uint16_t*)p->h.data)[i]) + from_bf16(((uint16_t*)p->y.data)[i]));
  }
#if FAULT == BREAKS_THE_DEVICE
  *(int32_t*)call->stream = 1;
#elif FAULT == LOOP
  while (forever) usleep(1000);
#elif FAULT == WRITE_BEHIND
  out[count] = 1;
#elif FAULT == WRITE_BEFORE
  out[-1] = 1;
#elif FAULT == WRITE_INPUT
  ((uint16_t*)p->h.data)[3] ^= 1;
#elif FAULT == RETURN_ERROR
  strcpy(err->message, "I would rather not");
  return AS_BAD_INPUT;
#elif FAULT == CRASH
  *(volatile int*)(uintptr_t)(forever - 1) = 1;
#elif FAULT == TOUCH_BEYOND
  out[(uintptr_t)1 << 40] = 1;
#endif
  return AS_OK;
}

#if FAULT == OTHER_LIST || FAULT == NOT_IN_LANE || FAULT == VERSION_1
/* As headers had it in version 1 of the lane: tables with an entry for every op. */
typedef struct table_of_ops {
  uint32_t struct_size, version;
  const char *name, *description;
  as_op_fn ops[30];
} table_of_ops;
typedef struct device_ops {
  uint32_t struct_size, version;
  uint8_t ops[30];
} device_ops;

static const table_of_ops lane = {
    sizeof(lane), 1, "on_device", "A plugin of the tests.", {[AS_OP_RESIDUAL] = residual}};
static const device_ops device = {sizeof(device),
#if FAULT == OTHER_LIST
                                  7,
#else
                                  1,
#endif
#if FAULT == NOT_IN_LANE
                                  {[AS_OP_SAMPLE] = 1}};
#else
                                  {[AS_OP_RESIDUAL] = 1}};
#endif
AS_PLUGIN_EXPORT const table_of_ops* attnscope_lane(void) { return &lane; }
AS_PLUGIN_EXPORT const device_ops* attnscope_device(void) { return &device; }
#else
static const as_lane_op ops[] = {AS_LANE_OP_ON_GPU(AS_OP_RESIDUAL, as_residual_params, residual)};
static const as_lane lane = AS_LANE("on_device", "A plugin of the tests.", ops);
AS_PLUGIN_EXPORT const as_lane* attnscope_lane(void) { return &lane; }
#endif
