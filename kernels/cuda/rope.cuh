// Rotary pairs inside kernels.
#pragma once

#include <cstdint>

#include "kernels/cuda/codec.cuh"
#include "kernels/cuda/view.cuh"

namespace attnscope::cuda {

// Turns the pair (even, odd) number i of 32 by the angle of a table row (32 cos, then 32 sin), or
// back with sign -1.
__device__ __forceinline__ void rotate_pair(const float* row, int i, float sign, float* even,
                                            float* odd) {
  const float c = row[i];
  const float s = sign * row[AS_ROPE_DIM / 2 + i];
  const float e = *even;
  const float o = *odd;
  *even = __fsub_rn(__fmul_rn(e, c), __fmul_rn(o, s));
  *odd = __fadd_rn(__fmul_rn(e, s), __fmul_rn(o, c));
}

// The same with results rounded to bf16, once: products of bf16 and fp32 numbers are exact in
// float64.
__device__ __forceinline__ void rotate_pair_to_bf16(const float* row, int i, float* even,
                                                    float* odd) {
  const auto c = static_cast<double>(row[i]), s = static_cast<double>(row[AS_ROPE_DIM / 2 + i]);
  const auto e = static_cast<double>(*even), o = static_cast<double>(*odd);
  *even = round_bf16(__dsub_rn(__dmul_rn(e, c), __dmul_rn(o, s)));
  *odd = round_bf16(__dadd_rn(__dmul_rn(e, s), __dmul_rn(o, c)));
}

}  // namespace attnscope::cuda
