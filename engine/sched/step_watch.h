// Invariants cheap enough for every step of a long run: what a step touched is checked in the step,
// and every `full_every` steps the whole state. Remembers what it found and what it cost.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "engine/sched/sched_invariants.h"

namespace attnscope {

class StepWatch : public SchedWatch {
 public:
  explicit StepWatch(const BlockScheduler& scheduler, std::int64_t full_every = 1000)
      : scheduler_(scheduler), full_every_(full_every) {}

  void after_schedule(const StepPlan& plan) override;
  void after_results(const StepPlan& plan) override;
  bool go_on() const override { return findings_.empty(); }

  const std::vector<Violation>& findings() const { return findings_; }
  std::int64_t steps() const { return steps_; }
  std::int64_t full_walks() const { return full_walks_; }
  std::chrono::nanoseconds cost() const { return cost_; }

 private:
  void check_request(const ScheduledTokens& scheduled);
  void check_figures(const StepPlan& plan);
  void walk();
  void fail(const char* invariant, std::string what);

  const BlockScheduler& scheduler_;
  std::int64_t full_every_;
  std::vector<Violation> findings_;
  const char* met_ = "";
  std::int64_t steps_ = 0;
  std::int64_t full_walks_ = 0;
  std::chrono::nanoseconds cost_{0};
};

}  // namespace attnscope
