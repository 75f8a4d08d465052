// Judges every decision in a loop around a scheduler whose requests sample known tokens, as those
// of a generated workload do.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "engine/decisions/decision_judge.h"
#include "engine/sched/sched_watch.h"

namespace attnscope {

class DecisionWatch : public SchedWatch {
 public:
  // The k-th token (from 0) that a request samples.
  using Sampled = std::function<std::int32_t(std::int64_t request, std::int64_t k)>;

  // Before the first request. One step at a time; the scheduler stays where it is.
  DecisionWatch(const BlockScheduler& scheduler, Sampled sampled)
      : scheduler_(scheduler), sampled_(std::move(sampled)), judge_(scheduler.options(), false) {}

  void after_change() override;
  void after_schedule(const StepPlan& plan) override { judge_.planned(scheduler_, plan); }
  void after_results(const StepPlan& plan) override;
  bool go_on() const override { return !judge_.wrong(); }

  const std::optional<WrongDecision>& wrong() const { return judge_.wrong(); }
  const DecisionCounts& counts() const { return judge_.counts(); }

 private:
  const BlockScheduler& scheduler_;
  Sampled sampled_;
  DecisionJudge judge_;
};

// What the model is told of a request.
plain::Request plain_request(const SchedRequest& request);

}  // namespace attnscope
