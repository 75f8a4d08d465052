// Takes from an op's trace the values that a golden keeps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/golden/golden_values.h"
#include "engine/session/step/step_trace.h"

namespace attnscope {

// Whose rows an op's tensors hold.
struct RowOwners {
  std::vector<std::int32_t> tokens;    // token row of the step of each row of a T axis
  std::vector<std::int32_t> requests;  // request of each row of a T axis
  std::vector<std::int32_t> sampled;   // request of each row of an N axis
};
RowOwners row_owners(const StepTrace& step);

// Adds the outputs of `op` that the golden wants, and the rows it wrote into caches.
void collect_taps(const OpTrace& op, const RowOwners& owners, const GoldenSpec& spec,
                  const std::string& where, std::vector<GoldenTap>& out);

// Tokens that a step sampled, with the scores they were chosen by.
void collect_tokens(const StepTrace& step, std::vector<GoldenToken>& out);

// Figures of a dense float tensor: statistics, about `samples` spread elements, ranges of rows.
void float_figures(const as_tensor& tensor, std::int64_t samples, GoldenTap& tap);

}  // namespace attnscope
