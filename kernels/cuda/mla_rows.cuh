// Rows of absorbed MLA inside kernels: FP8 blocks of 128 under one fp32 scale, index rows.
#pragma once

#include "kernels/cuda/codec.cuh"
#include "kernels/cuda/insert.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/view.cuh"
#include "kernels/params/numeric_rules.h"

namespace attnscope::cuda {

// The scale of a block by as_scale_rule; amax: its largest magnitude, NaN counting nothing.
__device__ __forceinline__ float block_scale(float amax, std::int32_t rule) {
  constexpr float kFloor = 1e-4f;
  if (rule == AS_SCALE_FLOAT) return __fdiv_rn(fmaxf(amax, kFloor), 448.0f);
  return exp2_int(fp8_exponent(amax, AS_SCALE_FLOOR_1E4));
}

// Four codes, the first in the low byte.
__device__ __forceinline__ std::uint32_t block_codes(const float* x, float scale) {
  std::uint32_t codes = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    codes |= static_cast<std::uint32_t>(float_to_e4m3(__fdiv_rn(x[i], scale))) << (8 * i);
  }
  return codes;
}

// Of a row of 128, lane l holding dims 4l..: codes, and the scale. A warp.
__device__ __forceinline__ float quantise_index_row(const float (&x)[4], std::int32_t rule,
                                                    unsigned char* codes) {
  float amax = 0.0f;
#pragma unroll
  for (const float v : x) amax = larger(amax, v);
  const float scale = block_scale(warp_max(amax), rule);
  const std::uint32_t packed = block_codes(x, scale);
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int i = 0; i < 4; ++i) codes[4 * lane + i] = static_cast<unsigned char>(packed >> (8 * i));
  return scale;
}

// x becomes the row in bf16 values: RoPE of its first 64 dims by halves, rounded once (products of
// bf16 and fp32 numbers are exact in float64), then the Hadamard transform. turn: row of the table.
__device__ __forceinline__ void finish_index_row(float (&x)[4], const float* turn, bool transform) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float other = __shfl_xor_sync(kAllLanes, x[i], 8);
    if (lane >= 16) continue;
    const int pair = 4 * (lane % 8) + i;
    const auto c = static_cast<double>(turn[pair]);
    const auto s = static_cast<double>(turn[AS_ROPE_DIM / 2 + pair]);
    const auto mine = static_cast<double>(x[i]), its = static_cast<double>(other);
    x[i] = round_bf16(lane < 8 ? __dsub_rn(__dmul_rn(mine, c), __dmul_rn(its, s))
                               : __dadd_rn(__dmul_rn(mine, c), __dmul_rn(its, s)));
  }
  if (transform) hadamard(x);
#pragma unroll
  for (float& v : x) v = round_bf16(v);
}

}  // namespace attnscope::cuda
