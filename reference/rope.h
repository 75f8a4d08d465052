// Rotary embedding: rows of the table that an op is given, the same from its numbers, and rotation
// of one vector.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "kernels/params/tensor.h"
#include "reference/tensors.h"

namespace attnscope::reference {

inline constexpr int kRopePairs = 32;

// f_i of the layer from its numbers, with YaRN when rope.factor > 1; as_rope_frequencies of
// rope.table.reserved.
std::array<double, kRopePairs> rope_frequencies(const as_rope& rope);

// cos (32) then sin (32) of position t.
struct RopeRow {
  std::array<double, kRopePairs> cos;
  std::array<double, kRopePairs> sin;
};
// Angle and functions in float64.
RopeRow rope_row_exact(const std::array<double, kRopePairs>& frequencies, std::int64_t t);
// Row t of the fp32 table (see as_rope): the values are binary32 numbers.
RopeRow rope_row_fp32(const std::array<double, kRopePairs>& frequencies, std::int64_t t);

// Rotates 64 values as 32 neighbouring pairs; inverse = by the negative angle.
void rotate(double* values, const RopeRow& row, bool inverse);

// What an op needs of its layer's embedding. A table is data, not the arithmetic under test: where
// one is given its rows are taken as they are, for ref.exact too. Without one they are computed.
class Rope {
 public:
  Rope(const as_rope& rope, bool exact);
  RopeRow row(std::int64_t t) const;

 private:
  std::optional<FloatRows> table_;
  std::array<double, kRopePairs> frequencies_{};
  bool exact_;
};

}  // namespace attnscope::reference
