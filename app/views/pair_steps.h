// Two runs beside each other step by step: what each scheduled, held and took.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "app/views/run_pair.h"

namespace attnscope {

struct PairStep {
  std::int64_t step = 0;
  std::shared_ptr<const StepSummary> a, b;  // null: there is no such step
  std::string what;                         // that differs; empty: they scheduled the same
};
struct PairSteps {
  std::vector<PairStep> steps;  // by number, of both
  double longest = 0;           // seconds of a decode step, or of any where there is none
  std::string sentence;
};
PairSteps pair_steps(const RunPair& comparison);

// The step of the first that computed what a step of the second did: that of its last token that
// both have. -1: there is none.
std::int64_t step_in_first(const RunPair& comparison, std::int64_t step_of_second);

}  // namespace attnscope
