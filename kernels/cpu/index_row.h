// Rows of the indexer that scores tokens: RoPE of the first 64 dims by halves, then the Hadamard
// transform.
#pragma once

#include <cstdint>

#include "kernels/cpu/codec.h"
#include "kernels/cpu/hadamard.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/layout/records.h"

namespace attnscope::cpu {

// x [128], bf16 values, becomes the row in bf16. Products of bf16 and fp32 numbers are exact in
// float64, so that no rotated value falls on the wrong side of a rounding boundary.
inline void finish_index_row(float* x, const float* turn, bool transform, std::uint16_t* row) {
  constexpr int kPairs = AS_ROPE_DIM / 2;
  for (int i = 0; i < kPairs; ++i) {
    const auto c = static_cast<double>(turn[i]), s = static_cast<double>(turn[kPairs + i]);
    const auto a = static_cast<double>(x[i]), b = static_cast<double>(x[kPairs + i]);
    x[i] = round_bf16(a * c - b * s);
    x[kPairs + i] = round_bf16(b * c + a * s);
  }
  if (transform) hadamard(x);
  simd::kernels().to_bf16(x, 1.0f, AS_INDEX_DIM, row);
}

}  // namespace attnscope::cpu
