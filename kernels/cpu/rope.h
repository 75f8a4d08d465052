// Applying a row of the rotary table to the last 64 dims of a vector.
#pragma once

#include <cstdint>

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

inline const float* rope_row(const as_rope& rope, std::int64_t position) {
  return at<const float>(rope.table, position);
}

}  // namespace attnscope::cpu
