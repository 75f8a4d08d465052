// Whether a session still gets on: a pool that holds no request that runs, or requests that take
// each other's blocks for ever, would go on without an end.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/sched/request.h"
#include "kernels/params/result.h"

namespace attnscope {

class ProgressWatch {
 public:
  // After each step. tokens: computed in it; usable: blocks of the pool without the null block.
  // AS_BAD_INPUT: nothing will come of further steps.
  Result<void> step_done(std::int64_t step, std::int64_t tokens,
                         const std::vector<Request>& requests, std::int64_t usable);

 private:
  std::int64_t step_ = -1;              // the last one seen
  std::vector<std::int64_t> furthest_;  // tokens that each request has ever had computed
  std::int64_t settled_ = 0;            // requests that have arrived, and those that are over
  std::int64_t idle_ = 0;               // steps without tokens, and preemptions, since one got on
  std::int64_t preemptions_ = 0;        // then
};

}  // namespace attnscope
