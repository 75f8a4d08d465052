// A request as a session shows it, and the limits of a step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace attnscope {

enum class RequestState {
  kWaiting,
  kRunning,
  kFinished,
  kExpected,   // has not arrived yet
  kPreempted,  // lost its blocks; waits to be computed again
  kAborted,
};
const char* request_state_name(RequestState state);  // "waiting", "running", ..
inline bool is_over(RequestState state) {
  return state == RequestState::kFinished || state == RequestState::kAborted;
}

struct Request {
  std::int32_t id = 0;  // dense, in the order of the scenario
  std::string name;
  std::vector<std::int32_t> tokens;  // prompt, then sampled
  std::int64_t prompt_tokens = 0;
  std::int64_t source_tokens = 0;  // of them, the first ones: what an encoder sees
  std::int64_t max_new_tokens = 0;
  std::int64_t priority = 0;      // smaller is more urgent
  std::int64_t arrival_step = 0;  // it arrives then, or as soon as nothing else is left to do
  std::int64_t abort_step = -1;   // it is taken away before this step; -1 = never
  // As it goes:
  std::int64_t computed = 0;  // tokens whose rows are in the caches
  RequestState state = RequestState::kWaiting;
  std::int64_t hit_tokens = 0;   // of its last admission: rows that others (or it) had computed
  std::int64_t preemptions = 0;  // how often it lost its blocks
  std::int64_t recomputed = 0;   // tokens computed again after that

  std::int64_t max_len() const { return prompt_tokens + max_new_tokens; }
  std::int64_t num_tokens() const { return static_cast<std::int64_t>(tokens.size()); }
  // Its logits were NaN: no token could be sampled to go on with. One that ended so is not to be
  // taken away later: its abort_step is -1, unless that fell due with the same step.
  bool ended_tokenless() const { return state == RequestState::kAborted && abort_step < 0; }
  bool in_prefill() const { return computed < prompt_tokens; }
};

struct SchedulerLimits {
  std::int64_t token_budget = 512;  // tokens per step
  std::int64_t max_requests = 8;    // running at once
};

}  // namespace attnscope
