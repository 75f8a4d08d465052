// Judges every decision of a replay (engine/sched/replay.h): calls in any order, several steps in
// flight, resets of the prefix cache, what tells equal prompts apart.
#pragma once

#include <optional>

#include "engine/decisions/decision_judge.h"
#include "engine/sched/replay.h"

namespace attnscope {

class ReplayJudge : public ReplayObserver {
 public:
  // AS_BAD_INPUT: as BlockScheduler::make.
  static Result<ReplayJudge> make(const Replay& replay);

  void after(const ReplayCall& call, const BlockScheduler& scheduler, const StepPlan& plan,
             bool done) override;

  const std::optional<WrongDecision>& wrong() const { return judge_.wrong(); }
  int line() const { return line_; }  // of the call at which it went wrong
  const DecisionCounts& counts() const { return judge_.counts(); }

 private:
  explicit ReplayJudge(const SchedulerOptions& options) : judge_(options, false) {}

  DecisionJudge judge_;
  int line_ = 0;
};

}  // namespace attnscope
