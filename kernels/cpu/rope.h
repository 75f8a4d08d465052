// Applying a row of the rotary table to the last 64 dims of a vector.
#pragma once

#include <cstdint>

#include "kernels/cpu/codec.h"
#include "kernels/layout/records.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {

// Rotates the 64 values x in place: e' = e cos - o sin, o' = e sin + o cos. `row` is one table row,
// 32 cos then 32 sin; sign -1 turns back.
inline void rotate(float* x, const float* row, float sign = 1.0f) {
  constexpr int kPairs = AS_ROPE_DIM / 2;
  for (int i = 0; i < kPairs; ++i) {
    const float c = row[i];
    const float s = sign * row[kPairs + i];
    const float even = x[2 * i];
    const float odd = x[2 * i + 1];
    x[2 * i] = even * c - odd * s;
    x[2 * i + 1] = even * s + odd * c;
  }
}

// The same with results rounded to bf16, once: in float64, where products of bf16 and fp32 numbers
// are exact, so that no result falls on the wrong side of a rounding boundary.
inline void rotate_to_bf16(float* x, const float* row) {
  constexpr int kPairs = AS_ROPE_DIM / 2;
  for (int i = 0; i < kPairs; ++i) {
    const auto c = static_cast<double>(row[i]), s = static_cast<double>(row[kPairs + i]);
    const auto even = static_cast<double>(x[2 * i]), odd = static_cast<double>(x[2 * i + 1]);
    x[2 * i] = round_bf16(even * c - odd * s);
    x[2 * i + 1] = round_bf16(even * s + odd * c);
  }
}

inline const float* rope_row(const as_rope& rope, std::int64_t position) {
  return at<const float>(rope.table, position);
}

}  // namespace attnscope::cpu
