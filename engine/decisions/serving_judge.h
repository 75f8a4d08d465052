// Judges every decision of a session's requests (engine/sched/serving.h), arrivals and aborts among
// them. A plain value: copying it is a checkpoint.
//
//   begin_step -> planned -> ended, each after the serving's own call
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/decisions/decision_judge.h"
#include "engine/sched/serving.h"

namespace attnscope {

class ServingJudge {
 public:
  // Before the first step.
  explicit ServingJudge(const Serving& serving);

  void begin_step(std::int64_t step, const Serving& serving);
  void planned(const Serving& serving) { judge_.planned(serving.scheduler(), serving.plan()); }
  // sampled, accepted: as Serving::finish_step.
  void ended(const Serving& serving, std::span<const std::int32_t> sampled,
             std::span<const std::int32_t> accepted);

  const std::optional<WrongDecision>& wrong() const { return judge_.wrong(); }
  const DecisionCounts& counts() const { return judge_.counts(); }

 private:
  struct Coming {
    plain::Request request;
    std::int64_t arrival_step = 0;
    std::int64_t abort_step = -1;
  };

  DecisionJudge judge_;
  std::vector<Coming> coming_;       // those who have not arrived, by id
  std::vector<std::int64_t> taken_;  // by id: the step before which it is taken away; -1 = never
};

}  // namespace attnscope
