// Number formats of the caches: bf16, e4m3fn, e2m1 and UE8M0, and whole rows of every record.
// Scalar and plain; the bulk forms used by hot loops lie in kernels/cpu/simd/.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/params/numeric_rules.h"
#include "kernels/params/tensor.h"

namespace attnscope::cpu {

inline float bf16_to_float(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

// Round to nearest even; NaN stays a (quiet) NaN.
inline std::uint16_t float_to_bf16(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

inline float round_bf16(float value) { return bf16_to_float(float_to_bf16(value)); }
// One rounding: not by way of the nearest float, which may lie on a tie that the value is beside,
// but of the one towards zero with its last bit standing for what was cut off. Nothing of it
// branches on which side the nearest float lies, which is anybody's guess.
inline float round_bf16(double value) {
  const float nearest = static_cast<float>(value);
  const auto again = static_cast<double>(nearest);
  std::uint32_t bits;
  std::memcpy(&bits, &nearest, sizeof(bits));
  const std::uint32_t beyond = std::fabs(again) > std::fabs(value) ? 1u : 0u;
  const bool cut_off = again != value && std::isfinite(nearest);
  bits = cut_off ? (bits - beyond) | 1u : bits;
  float odd;
  std::memcpy(&odd, &bits, sizeof(odd));
  return round_bf16(odd);
}

// IEEE binary16. Round to nearest even, beyond 65504 infinite; NaN stays a (quiet) NaN.
float f16_to_float(std::uint16_t bits);
std::uint16_t float_to_f16(float value);

// e4m3fn: bias 7, largest 448, no infinities, NaN is 0x7f and 0xff.
float e4m3_to_float(std::uint8_t code);
// Round to nearest even, beyond 448 saturating; NaN of either sign gives 0x7f.
std::uint8_t float_to_e4m3(float value);

// e2m1: 0, .5, 1, 1.5, 2, 3, 4, 6 with the sign in bit 3.
float e2m1_to_float(std::uint8_t code);
// Round to nearest even, beyond 6 saturating; NaN of either sign gives +6.
std::uint8_t float_to_e2m1(float value);
// The same with ties towards zero and without -0.
std::uint8_t float_to_e2m1_down(float value);

// UE8M0 byte b means 2^(b-127); 255 is NaN.
float ue8m0_to_float(std::uint8_t code);
std::uint8_t exponent_to_ue8m0(int exponent);

// 2^exponent, exact down to the denormals.
float exp2i(int exponent);

constexpr float kFp8AmaxFloor = 1e-4f;
constexpr float kFp8SmallFloor = 1e-8f;
constexpr float kFp8OutputFloor = 1e-10f;
constexpr float kMxfp4AmaxFloor = 0x1.8p-124f;  // 6 * 2^-126
constexpr float kMxfp4LargeFloor = 6e-4f;       // of AS_FP4_DOWN
constexpr int kInfiniteExponent = 1024;         // of an infinite amax

// The least amax that a scale is made of.
float fp8_floor(std::int32_t scale_floor);

// ceil(log2(amax / 448)) and ceil(log2(amax / 6)) without rounding error, floors applied.
int fp8_exponent(float amax, std::int32_t scale_floor = AS_SCALE_FLOOR_1E4);
int mxfp4_exponent(float amax, std::int32_t fp4_rule = AS_FP4_EVEN);

// Largest |x|; NaN does not count.
float abs_max(const float* x, int n);

// Codes of x * 2^-exponent.
void encode_e4m3(const float* x, int n, int exponent, unsigned char* codes);

// What published code does in more than one way.
struct QuantiseRules {
  std::int32_t scale_floor = AS_SCALE_FLOOR_1E4;
  std::int32_t fp4 = AS_FP4_EVEN;
};

// One cache row of a record from the values before quantisation (bf16-valued fp32), and back.
// width: 512 for LATENT, 128 for the index records; STATE is copied.
void quantise_row(std::int32_t record, int width, const float* row, unsigned char* payload,
                  unsigned char* scales, const QuantiseRules& rules = {});
void decode_row(std::int32_t record, int width, const unsigned char* payload,
                const unsigned char* scales, float* out);

}  // namespace attnscope::cpu
