// Frequencies of DeepSeek-V4's rotary embedding, and rows of tables: a few numbers, one after the
// other. What is rotated by them is in reference/torch/rotary.h.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/params/tensor.h"

namespace attnscope::reference {

inline constexpr int kRopePairs = 32;

// f_i of the layer from its numbers, with YaRN when rope.factor > 1; as_rope_frequencies of
// rope.table.reserved. Throws BadInput where the numbers make no embedding.
std::array<double, kRopePairs> rope_frequencies(const as_rope& rope);

// cos and sin of position t times each frequency: as the fp32 table of the contract (as_rope),
// whose values are binary32 numbers, or all in float64.
struct RopeRow {
  std::vector<double> cos, sin;
};
RopeRow rope_row(std::span<const double> frequencies, std::int64_t t, bool exact);

}  // namespace attnscope::reference
