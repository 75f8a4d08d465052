// Number formats inside kernels: bf16, e4m3fn, e2m1, UE8M0, and whole rows of the cache records.
#pragma once

#include <cstdint>

#include "kernels/cuda/view.cuh"
#include "kernels/params/numeric_rules.h"

namespace attnscope::cuda {

constexpr float kFp8Floor = 1e-4f;
constexpr float kFp8SmallFloor = 1e-8f;
constexpr float kFp8OutputFloor = 1e-10f;
constexpr float kMxfp4Floor = 0x1.8p-124f;  // 6 * 2^-126
constexpr float kMxfp4LargeFloor = 6e-4f;   // of AS_FP4_DOWN
constexpr int kInfiniteExponent = 1024;     // of an infinite largest value

__device__ __forceinline__ float bf16_to_float(std::uint16_t bits) {
  return __uint_as_float(static_cast<std::uint32_t>(bits) << 16);
}

// Nearest, ties to even; a NaN keeps its sign and upper bits and is quiet.
__device__ __forceinline__ std::uint16_t float_to_bf16(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  if (value != value) return static_cast<std::uint16_t>((bits >> 16) | 0x0040u);
  const std::uint32_t odd = (bits >> 16) & 1u;
  return static_cast<std::uint16_t>((bits + 0x7fffu + odd) >> 16);
}

__device__ __forceinline__ float round_bf16(float value) {
  return bf16_to_float(float_to_bf16(value));
}

// One rounding: the double is first cut to a float whose last bit is sticky.
__device__ inline float round_bf16(double value) {
  float toward_zero = __double2float_rz(value);
  if (static_cast<double>(toward_zero) != value && isfinite(toward_zero)) {
    toward_zero = __uint_as_float(__float_as_uint(toward_zero) | 1u);
  }
  return round_bf16(toward_zero);
}

// 2^e: infinite above the range of fp32, subnormal below it.
__device__ __forceinline__ float exp2_int(int e) {
  if (e > 127) return __uint_as_float(0x7f800000u);
  if (e >= -126) return __uint_as_float(static_cast<std::uint32_t>(e + 127) << 23);
  return e >= -149 ? __uint_as_float(1u << (e + 149)) : 0.0f;
}

__device__ __forceinline__ float ue8m0_to_float(std::uint32_t code) {
  if (code == 255u) return __uint_as_float(0x7fc00000u);
  return code == 0u ? __uint_as_float(0x00400000u) : __uint_as_float(code << 23);
}

__device__ __forceinline__ std::uint8_t exponent_to_ue8m0(int e) {
  return static_cast<std::uint8_t>(min(max(e + 127, 0), 255));
}

// ceil(log2(amax / (m * 2^shift))) for a normal amax, m given by the 23 bits of its fraction: the
// fraction of amax decides whether the exponent goes up.
__device__ __forceinline__ int scale_exponent(float amax, std::uint32_t fraction, int shift) {
  const std::uint32_t bits = __float_as_uint(amax);
  if (bits == 0x7f800000u) return kInfiniteExponent;
  const int exponent = static_cast<int>(bits >> 23) - 127 - shift;
  return exponent + ((bits & 0x7fffffu) > fraction ? 1 : 0);
}
__device__ __forceinline__ int fp8_exponent(float amax, int scale_floor) {
  const float floor = scale_floor == AS_SCALE_FLOOR_1E8    ? kFp8SmallFloor
                      : scale_floor == AS_SCALE_FLOOR_1E10 ? kFp8OutputFloor
                                                           : kFp8Floor;
  return scale_exponent(fmaxf(amax, floor), 0x600000u, 8);  // 448 = 1.75 * 2^8
}
__device__ __forceinline__ int mxfp4_exponent(float amax, int fp4_rule) {
  const float floor = fp4_rule == AS_FP4_DOWN ? kMxfp4LargeFloor : kMxfp4Floor;
  return scale_exponent(fmaxf(amax, floor), 0x400000u, 2);  // 6 = 1.5 * 2^2
}

// The factor that takes a value to its block's codes; an infinite block maps to zeros and NaN.
__device__ __forceinline__ float encode_factor(int exponent) {
  return exponent >= kInfiniteExponent ? 0.0f : exp2_int(-exponent);
}

// Nearest e4m3, ties to even, saturating; every NaN becomes 0x7f.
__device__ __forceinline__ std::uint8_t float_to_e4m3(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  const std::uint32_t sign = (bits >> 24) & 0x80u;
  const float magnitude = fabsf(value);
  if (value != value) return 0x7f;
  if (magnitude >= 464.0f) return static_cast<std::uint8_t>(sign | 0x7eu);
  std::uint32_t code;
  if (magnitude < 0.015625f) {
    code = static_cast<std::uint32_t>(__float2int_rn(magnitude * 512.0f));  // steps of 2^-9
  } else {
    const std::uint32_t m = bits & 0x7fffffffu;
    const std::uint32_t rounded = (m + 0x7ffffu + ((m >> 20) & 1u)) >> 20;  // 3 fraction bits left
    code = min(rounded - (120u << 3), 0x7eu);
  }
  return static_cast<std::uint8_t>(sign | code);
}

// Nearest e2m1 (0 .5 1 1.5 2 3 4 6), ties to the even code, saturating; NaN becomes +6.
__device__ __forceinline__ std::uint32_t float_to_e2m1(float value) {
  if (value != value) return 7u;
  const float a = fabsf(value);
  std::uint32_t code = a > 0.25f ? 1u : 0u;
  code += a >= 0.75f ? 1u : 0u;
  code += a > 1.25f ? 1u : 0u;
  code += a >= 1.75f ? 1u : 0u;
  code += a > 2.5f ? 1u : 0u;
  code += a >= 3.5f ? 1u : 0u;
  code += a > 5.0f ? 1u : 0u;
  return code | (__float_as_uint(value) >> 28 & 8u);
}

// The same with ties towards zero and without -0.
__device__ __forceinline__ std::uint32_t float_to_e2m1_down(float value) {
  if (value != value) return 7u;
  const float a = fabsf(value);
  std::uint32_t code = a > 0.25f ? 1u : 0u;
  code += a > 0.75f ? 1u : 0u;
  code += a > 1.25f ? 1u : 0u;
  code += a > 1.75f ? 1u : 0u;
  code += a > 2.5f ? 1u : 0u;
  code += a > 3.5f ? 1u : 0u;
  code += a > 5.0f ? 1u : 0u;
  return code == 0u ? 0u : code | (__float_as_uint(value) >> 28 & 8u);
}

// Largest magnitude so far; a NaN does not count.
__device__ __forceinline__ float larger(float amax, float value) {
  return fmaxf(amax, fabsf(value));
}

// ---- decoding into pairs of bf16, exactly

// c * 2^(code - 127), lanewise, for values whose own scale is 2^bias too small: two products where
// one factor would overflow.
__device__ __forceinline__ __nv_bfloat162 rescale(__nv_bfloat162 value, std::uint32_t code,
                                                  int bias) {
  const int exponent = static_cast<int>(code) + bias;  // biased exponent of the whole factor
  if (exponent <= 254) {
    const auto bits = static_cast<unsigned short>(exponent << 7);
    return __hmul2(value, __bfloat162bfloat162(__ushort_as_bfloat16(bits)));
  }
  const auto first = static_cast<unsigned short>((bias + 127) << 7);
  const unsigned short second = code == 255u ? 0x7fc0 : static_cast<unsigned short>(code << 7);
  return __hmul2(__hmul2(value, __bfloat162bfloat162(__ushort_as_bfloat16(first))),
                 __bfloat162bfloat162(__ushort_as_bfloat16(second)));
}

__device__ __forceinline__ __nv_bfloat162 as_bf162(std::uint32_t bits) {
  __nv_bfloat162 value;
  *reinterpret_cast<std::uint32_t*>(&value) = bits;
  return value;
}
__device__ __forceinline__ std::uint32_t as_bits(__nv_bfloat162 value) {
  return *reinterpret_cast<const std::uint32_t*>(&value);
}

// Four e4m3 codes as two pairs of bf16, 2^-120 of their value: a code keeps its sign and its seven
// other bits move to the top of the bf16's exponent and fraction, which is right for subnormals
// too. The code of NaN alone has no such image.
__device__ __forceinline__ void widen_e4m3x4(std::uint32_t codes, __nv_bfloat162* low,
                                             __nv_bfloat162* high) {
  // Bytes 0,1 and 2,3 to the upper halves of 16-bit lanes.
  const std::uint32_t a = __byte_perm(codes, 0, 0x1404);
  const std::uint32_t b = __byte_perm(codes, 0, 0x3424);
  *low = as_bf162((a & 0x80008000u) | ((a & 0x7f007f00u) >> 4));
  *high = as_bf162((b & 0x80008000u) | ((b & 0x7f007f00u) >> 4));
}
// The top bit of every byte that is the code of NaN.
__device__ __forceinline__ std::uint32_t nan_e4m3x4(std::uint32_t codes) {
  return ((codes & 0x7f7f7f7fu) + 0x01010101u) & 0x80808080u;
}

// Four e4m3 codes as two pairs of bf16 times 2^(code - 127).
__device__ __forceinline__ void decode_e4m3x4(std::uint32_t codes, std::uint32_t scale,
                                              std::uint32_t* low, std::uint32_t* high) {
  __nv_bfloat162 a, b;
  widen_e4m3x4(codes, &a, &b);
  *low = as_bits(rescale(a, scale, 120));
  *high = as_bits(rescale(b, scale, 120));
  const std::uint32_t nan = nan_e4m3x4(codes);
  if (nan != 0u) {
    if ((nan & 0x00000080u) != 0u) *low |= 0x00007fc0u;
    if ((nan & 0x00008000u) != 0u) *low |= 0x7fc00000u;
    if ((nan & 0x00800000u) != 0u) *high |= 0x00007fc0u;
    if ((nan & 0x80000000u) != 0u) *high |= 0x7fc00000u;
  }
}

// Sixteen at once, of one scale: the usual case in a straight line.
__device__ __forceinline__ void decode_e4m3x16(const uint4& codes, std::uint32_t scale, uint4* low,
                                               uint4* high) {
  const std::uint32_t nan =
      nan_e4m3x4(codes.x) | nan_e4m3x4(codes.y) | nan_e4m3x4(codes.z) | nan_e4m3x4(codes.w);
  if (nan != 0u || scale > 254u - 120u) {
    decode_e4m3x4(codes.x, scale, &low->x, &low->y);
    decode_e4m3x4(codes.y, scale, &low->z, &low->w);
    decode_e4m3x4(codes.z, scale, &high->x, &high->y);
    decode_e4m3x4(codes.w, scale, &high->z, &high->w);
    return;
  }
  const std::uint32_t power = (scale + 120u) << 7;
  const __nv_bfloat162 factor = as_bf162(power << 16 | power);
  __nv_bfloat162 wide[8];
  widen_e4m3x4(codes.x, &wide[0], &wide[1]);
  widen_e4m3x4(codes.y, &wide[2], &wide[3]);
  widen_e4m3x4(codes.z, &wide[4], &wide[5]);
  widen_e4m3x4(codes.w, &wide[6], &wide[7]);
#pragma unroll
  for (__nv_bfloat162& pair : wide) pair = __hmul2(pair, factor);
  *low = make_uint4(as_bits(wide[0]), as_bits(wide[1]), as_bits(wide[2]), as_bits(wide[3]));
  *high = make_uint4(as_bits(wide[4]), as_bits(wide[5]), as_bits(wide[6]), as_bits(wide[7]));
}

// Four e2m1 codes (16 bits, low nibble first) as two pairs of bf16 times 2^(code - 127): the same
// move, times 2^-126.
__device__ __forceinline__ void decode_e2m1x4(std::uint32_t codes, std::uint32_t scale,
                                              std::uint32_t* low, std::uint32_t* high) {
  const std::uint32_t a = (codes & 0xfu) | ((codes & 0xf0u) << 12);
  const std::uint32_t b = ((codes & 0xf00u) >> 8) | ((codes & 0xf000u) << 4);
  const std::uint32_t wide_a = ((a & 0x00080008u) << 12) | ((a & 0x00070007u) << 6);
  const std::uint32_t wide_b = ((b & 0x00080008u) << 12) | ((b & 0x00070007u) << 6);
  *low = as_bits(rescale(as_bf162(wide_a), scale, 126));
  *high = as_bits(rescale(as_bf162(wide_b), scale, 126));
}

}  // namespace attnscope::cuda
