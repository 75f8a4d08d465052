#include "engine/session/progress_watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnscope {
namespace {

// Blocks that are freed late come back within a few steps.
constexpr std::int64_t kIdleSteps = 64;
// Of each request, until one gets further than any time before.
constexpr std::int64_t kPreemptions = 8;

}  // namespace

Result<void> ProgressWatch::step_done(std::int64_t step, std::int64_t tokens,
                                      const std::vector<Request>& requests, std::int64_t usable) {
  if (step <= step_) furthest_.clear();  // the session went back
  step_ = step;
  std::int64_t settled = 0, preemptions = 0;
  bool further = furthest_.size() != requests.size(), change_ahead = false;
  furthest_.resize(requests.size(), 0);
  const Request* head = nullptr;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Request& r = requests[i];
    settled += (r.state != RequestState::kExpected ? 1 : 0) + (is_over(r.state) ? 1 : 0);
    preemptions += r.preemptions;
    further = further || r.computed > furthest_[i];
    furthest_[i] = std::max(furthest_[i], r.computed);
    if (is_over(r.state)) continue;
    change_ahead = change_ahead || r.abort_step > step;
    if (head == nullptr || head->state == RequestState::kExpected) head = &r;
  }
  if (further || settled != settled_ || change_ahead || head == nullptr) {
    settled_ = settled;
    preemptions_ = preemptions;
    idle_ = 0;
    return {};
  }
  idle_ += tokens == 0 ? 1 : 0;
  const std::int64_t taken = preemptions - preemptions_;
  const auto most = static_cast<std::int64_t>(requests.size()) * kPreemptions;
  if (idle_ < kIdleSteps && taken < most) return {};
  const std::string why =
      taken >= most ? fmt::format("requests have taken each other's blocks {} times", taken)
                    : fmt::format("{} steps computed no token", idle_);
  idle_ = 0;
  preemptions_ = preemptions;
  return bad_input(
      fmt::format("the session gets no further at step {}: {}, and no request has come "
                  "further; \"{}\" of {} tokens is {}, the pool has {} blocks",
                  step, why, head->name, head->num_tokens(), request_state_name(head->state),
                  usable),
      "raise pool_blocks, or lower the lengths of the requests or max_requests");
}

}  // namespace attnscope
