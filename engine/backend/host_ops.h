// The ops that are the engine itself: scheduling and block tables. They take the same params
// structs as every other op; as_call.host points to a StepHost, which carries them out.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/cache/block_manager.h"
#include "engine/sched/scheduler.h"
#include "kernels/params/lane.h"

namespace attnscope {

struct StepHost {
  Scheduler* scheduler = nullptr;
  BlockManager* blocks = nullptr;
  const std::vector<std::int32_t>* live = nullptr;  // request ids by row
  std::int64_t free_count = 0;                      // out: how many entries of free_after hold ids
};

std::int32_t host_schedule(const void* params, const as_call* call, as_error* err);
std::int32_t host_block_tables(const void* params, const as_call* call, as_error* err);

// Fills err and returns its code.
std::int32_t fail(as_error* err, as_status code, const char* message);

}  // namespace attnscope
