// The invariants of the block manager and the scheduler around every step of a session: which ones,
// what they found, what they cost.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/sched/serving.h"
#include "engine/sched/step_watch.h"

namespace attnscope {

enum class Invariants {
  kOff,
  kStep,  // what a step touched, and all of the state every 1,000 steps
  kCall,  // all of the state around every call to the block manager
};
const char* invariants_name(Invariants level);  // "off", "step", "call"
Result<Invariants> parse_invariants(std::string_view name);
// In builds that are not optimised every call is checked.
Invariants default_invariants();

class InvariantGuard {
 public:
  // Watches from now on; also after the serving was put back to an earlier state. It stays where it
  // is as long as it is watched.
  void attach(Serving& serving, Invariants level);
  Invariants level() const { return level_; }

  void before_schedule();
  void after_schedule(const StepPlan& plan);
  void after_results(const StepPlan& plan);
  void after_arrivals();

  // The first one that did not hold; nothing more is checked after it.
  const std::optional<Violation>& violation() const { return violation_; }
  std::int64_t steps() const { return steps_; }  // that were checked
  double seconds() const { return std::chrono::duration<double>(cost_).count(); }

 private:
  template <class F>
  void timed(const F& f);

  Invariants level_ = Invariants::kOff;
  std::unique_ptr<SchedWatch> watch_;
  std::optional<Violation> violation_;
  std::int64_t steps_ = 0;
  std::chrono::steady_clock::duration cost_{0};
};

}  // namespace attnscope
