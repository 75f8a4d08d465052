// Quantising a row and storing it in a cache, one warp a row, by record. Rows hold bf16-valued
// fp32.
#pragma once

#include <cstdint>

#include "kernels/cuda/codec.cuh"
#include "kernels/cuda/reduce.cuh"

namespace attnscope::cuda {

// Four e4m3 codes of values times a factor, the first in the low byte.
__device__ __forceinline__ std::uint32_t encode_e4m3x4(const float* x, float factor) {
  std::uint32_t codes = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    codes |= static_cast<std::uint32_t>(float_to_e4m3(x[i] * factor)) << (8 * i);
  }
  return codes;
}

__device__ __forceinline__ std::uint32_t pack_bf16(float low, float high) {
  return float_to_bf16(low) | static_cast<std::uint32_t>(float_to_bf16(high)) << 16;
}

// A latent row: lane l holds dims 8l.. in v[0..7] and 256 + 8l.. in v[8..15].
__device__ inline void insert_latent(const float* v, const RowAddress& to, int scale_floor) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float* x = v + 8 * half;
    float amax = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) amax = larger(amax, x[i]);
    const int exponent = fp8_exponent(warp_max<8>(amax), scale_floor);
    if (half == 1 && lane >= 24) {
      const int d = (lane - 24) * 8;
      *reinterpret_cast<uint4*>(to.payload + AS_NOPE_DIM + 2 * d) =
          make_uint4(pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]), pack_bf16(x[4], x[5]),
                     pack_bf16(x[6], x[7]));
      if (lane == 24) to.scales[AS_QUANT_BLOCKS] = 0;
    } else {
      const float factor = encode_factor(exponent);
      *reinterpret_cast<uint2*>(to.payload + 256 * half + 8 * lane) =
          make_uint2(encode_e4m3x4(x, factor), encode_e4m3x4(x + 4, factor));
      if (lane % 8 == 0) to.scales[4 * half + lane / 8] = exponent_to_ue8m0(exponent);
    }
  }
}

// Codes of an index row of 128 dims, lane l holding dims 4l..; 4 bytes a lane.
__device__ inline int quantise_index_fp8(const float* x, unsigned char* codes, int scale_floor) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  float amax = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) amax = larger(amax, x[i]);
  const int exponent = fp8_exponent(warp_max(amax), scale_floor);
  const std::uint32_t packed = encode_e4m3x4(x, encode_factor(exponent));
#pragma unroll
  for (int i = 0; i < 4; ++i) codes[4 * lane + i] = static_cast<unsigned char>(packed >> (8 * i));
  return exponent;
}

// The same in e2m1, 2 bytes a lane, with a scale byte for each 32 dims.
__device__ inline void quantise_index_mxfp4(const float* x, unsigned char* codes,
                                            unsigned char* scales, int fp4_rule) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  float amax = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) amax = larger(amax, x[i]);
  const int exponent = mxfp4_exponent(warp_max<8>(amax), fp4_rule);
  const float factor = encode_factor(exponent);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const bool down = fp4_rule == AS_FP4_DOWN;
    const float a = x[2 * i] * factor, b = x[2 * i + 1] * factor;
    const std::uint32_t low = down ? float_to_e2m1_down(a) : float_to_e2m1(a);
    const std::uint32_t high = down ? float_to_e2m1_down(b) : float_to_e2m1(b);
    codes[2 * lane + i] = static_cast<unsigned char>(low | high << 4);
  }
  if (lane % 8 == 0) scales[lane / 8] = exponent_to_ue8m0(exponent);
}

__device__ inline void insert_index(const float* x, int record, const RowAddress& to,
                                    int scale_floor, int fp4_rule) {
  if (record == AS_RECORD_INDEX_FP8) {
    const int exponent = quantise_index_fp8(x, to.payload, scale_floor);
    if (threadIdx.x % 32 == 0) *reinterpret_cast<float*>(to.scales) = exp2_int(exponent);
  } else {
    quantise_index_mxfp4(x, to.payload, to.scales, fp4_rule);
  }
}

// Normalised Hadamard transform of 128 values, lane l holding dims 4l.. .
__device__ inline void hadamard(float* x) {
  constexpr float kScale = 0.08838834764831845f;  // 128^-0.5
#pragma unroll
  for (int step = 1; step < 4; step *= 2) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & step) != 0) continue;
      const float a = x[i];
      const float b = x[i + step];
      x[i] = a + b;
      x[i + step] = a - b;
    }
  }
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const bool upper = (threadIdx.x & static_cast<unsigned>(step)) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float other = __shfl_xor_sync(kAllLanes, x[i], step);
      x[i] = upper ? other - x[i] : x[i] + other;
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] *= kScale;
}

}  // namespace attnscope::cuda
