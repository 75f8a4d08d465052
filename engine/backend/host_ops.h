// The ops that are the engine itself: scheduling and block tables. They take the same params
// structs as every other op; as_call.host points to a StepHost, which carries them out.
#pragma once

#include <cstdint>

#include "engine/sched/serving.h"
#include "kernels/params/lane.h"

namespace attnscope {

struct StepHost {
  const Serving* serving = nullptr;  // whose schedule() has run in this step
};

std::int32_t host_schedule(const void* params, const as_call* call, as_error* err);
std::int32_t host_block_tables(const void* params, const as_call* call, as_error* err);

// Fills err and returns its code.
std::int32_t fail(as_error* err, as_status code, const char* message);

}  // namespace attnscope
