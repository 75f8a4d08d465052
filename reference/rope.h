// Rotary embedding: frequencies, the fp32 table that kernels read, and rotation of one vector.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/params/tensor.h"

namespace attnscope::reference {

inline constexpr int kRopePairs = 32;

// f_i of the layer, with YaRN when rope.factor > 1.
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

// What an op needs of its layer's embedding.
class Rope {
 public:
  Rope(const as_rope& rope, bool exact);
  RopeRow row(std::int64_t t) const {
    return exact_ ? rope_row_exact(frequencies_, t) : rope_row_fp32(frequencies_, t);
  }

 private:
  std::array<double, kRopePairs> frequencies_;
  bool exact_;
};

}  // namespace attnscope::reference
