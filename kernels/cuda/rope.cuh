// Rotary pairs inside kernels.
#pragma once

#include <cstdint>

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

}  // namespace attnscope::cuda
