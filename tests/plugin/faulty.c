/* A plugin with one op, residual, and one fault, chosen when it is compiled: FAULT=NAME. Without a
 * fault it is right. */
#include <attnscope_plugin.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/plugin/bf16.h"

#define NONE 0
#define CRASH 1
#define LOOP 2
#define WRITE_BEHIND 3
#define WRITE_BEFORE 4
#define WRITE_INPUT 5
#define RETURN_ERROR 6
#define EXIT 7
#define ABORT 8
#define NO_SYMBOL 9
#define OTHER_VERSION 10
#define NO_NAME 11
#define NO_OPS 12
#define CRASH_WHILE_LOADED 13
#define UNRESOLVED 14
#define PLANTED 15
#define WRITE_FAR_BEHIND 16
#define READ_BEHIND 17
#define HOST_OP 18
#define STRAY_ROW 19
#define CRASH_THREADS 20
#define CLOSE_ALL 21

#if FAULT == UNRESOLVED
int nobody_has_this(void);
#endif

static volatile int forever = 1;

#if FAULT == CRASH_THREADS
static void far_behind(void* out, int64_t begin, int64_t end) {
  for (; begin < end; ++begin) ((volatile uint16_t*)out)[begin] = 1;
}
#endif

static int32_t spoil(const as_residual_params* p, const as_call* call, as_error* err) {
  uint16_t* out = (uint16_t*)p->out.data;
  const int64_t count = p->out.shape[0] * p->out.shape[1];
  (void)out;
  (void)count;
  (void)call;
  (void)err;
#if FAULT == CRASH
  *(volatile int*)(uintptr_t)(forever - 1) = 1;
#elif FAULT == LOOP
  while (forever) usleep(1000);
#elif FAULT == WRITE_BEHIND
  out[count] = 1;
#elif FAULT == WRITE_FAR_BEHIND
  out[count + 1000] = 1;
#elif FAULT == CRASH_THREADS
  call->threads->parallel_for(call->threads->pool, 64, 1, far_behind, out + count + 1000);
#elif FAULT == CLOSE_ALL
  close(3);
  while (forever) usleep(1000);
#elif FAULT == READ_BEHIND
  out[0] = ((volatile uint16_t*)p->h.data)[count + 1000];
#elif FAULT == WRITE_BEFORE
  out[-1] = 1;
#elif FAULT == WRITE_INPUT
  ((uint16_t*)p->h.data)[3] = 1;
#elif FAULT == RETURN_ERROR
  strcpy(err->message, "I would rather not");
  return AS_BAD_INPUT;
#elif FAULT == EXIT
  _exit(7);
#elif FAULT == ABORT
  abort();
#elif FAULT == UNRESOLVED
  return nobody_has_this();
#endif
  return AS_OK;
}

static int32_t residual(const void* params, const as_call* call, as_error* err) {
  const as_residual_params* p = (const as_residual_params*)params;
  int64_t t, c;
  for (t = 0; t < p->h.shape[0]; ++t) {
    for (c = 0; c < p->h.shape[1]; ++c) {
      const float h = from_bf16(((uint16_t*)p->h.data)[t * p->h.stride[0] + c * p->h.stride[1]]);
      float y = from_bf16(((uint16_t*)p->y.data)[t * p->y.stride[0] + c * p->y.stride[1]]);
#if FAULT == PLANTED
      y *= 1.25f;
#endif
      ((uint16_t*)p->out.data)[t * p->out.stride[0] + c * p->out.stride[1]] = to_bf16(h + y);
    }
  }
  return spoil(p, call, err);
}

/* Saves every row as it should, and one byte more in the slot behind the first one. */
static int32_t state_with_a_stray_row(const void* params, const as_call* call, as_error* err) {
  const as_compressor_state_params* p = (const as_compressor_state_params*)params;
  const int64_t half = p->proj.shape[1] / 2;
  int64_t t, c;
  (void)call;
  (void)err;
  for (t = 0; t < p->slots.shape[0]; ++t) {
    const int64_t slot = ((int64_t*)p->slots.data)[t];
    const float* from = (const float*)p->proj.data + t * p->proj.stride[0];
    const float* ape;
    float* to;
    if (slot < 0) continue;
    ape =
        (const float*)p->ape.data + ((int64_t*)p->positions.data)[t] % p->ratio * p->ape.stride[0];
    to = (float*)(void*)as_cache_row(&p->state, slot).payload;
    for (c = 0; c < 2 * half; ++c) to[c] = c < half ? from[c] : from[c] + ape[c - half];
  }
  *as_cache_row(&p->state, 1).payload = 0;
  return AS_OK;
}

#if FAULT == CRASH_WHILE_LOADED
__attribute__((constructor)) static void too_early(void) { raise(SIGSEGV); }
#endif

static const as_lane_op ops[] = {
#if FAULT == HOST_OP
    AS_LANE_OP(AS_OP_SCHEDULE, as_schedule_params, residual)
#elif FAULT == STRAY_ROW
    AS_LANE_OP(AS_OP_COMPRESSOR_STATE, as_compressor_state_params, state_with_a_stray_row)
#else
    AS_LANE_OP(AS_OP_RESIDUAL, as_residual_params, residual)
#endif
};

static const as_lane lane = {sizeof(as_lane),
#if FAULT == OTHER_VERSION
                             AS_LANE_VERSION + 40,
#else
                             AS_LANE_VERSION,
#endif
#if FAULT == NO_NAME
                             "no word",
#else
                             "faulty",
#endif
                             "A plugin of the tests.",
#if FAULT == NO_OPS
                             0,
#else
                             1,
#endif
                             sizeof(as_lane_op),
                             ops};

#if FAULT == NO_SYMBOL
AS_PLUGIN_EXPORT const as_lane* attnscope_lanes(void);
AS_PLUGIN_EXPORT const as_lane* attnscope_lanes(void) {
  (void)state_with_a_stray_row;
  return &lane;
}
#else
AS_PLUGIN_EXPORT const as_lane* attnscope_lane(void);
AS_PLUGIN_EXPORT const as_lane* attnscope_lane(void) {
  (void)state_with_a_stray_row;
  (void)residual;
  return &lane;
}
#endif
