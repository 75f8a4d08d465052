// Number formats of the caches, element by element, and the scale exponents of the quantisers.
// Arithmetic in float64, where every value of these formats and every scaled value is exact.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/params/numeric_rules.h"

namespace attnscope::reference {

// bf16: upper half of a binary32.
std::uint16_t bf16_bits(double x);  // to nearest even
inline double bf16_value(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// binary16: to nearest even, beyond 65504 infinite.
std::uint16_t f16_bits(double x);
double f16_value(std::uint16_t bits);

// e4m3fn: bias 7, largest 448, no infinities, NaN 0x7F and 0xFF. Encoding is to nearest even and
// saturates at +-448; NaN gives 0x7F.
std::uint8_t e4m3_code(double x);
double e4m3_value(std::uint8_t code);

// e2m1: 0, .5, 1, 1.5, 2, 3, 4, 6, sign in bit 3. Encoding is to nearest even and saturates at +-6;
// NaN gives 7 (+6).
std::uint8_t e2m1_code(double x);
// Ties towards zero, and no code for -0.
std::uint8_t e2m1_code_down(double x);
double e2m1_value(std::uint8_t code);  // low four bits

// UE8M0: byte b is 2^(b-127), 255 is NaN.
double ue8m0_value(std::uint8_t byte);
std::uint8_t ue8m0_byte(int exponent);  // clamped to 0..255

// Largest |x|; NaN elements are passed over.
double abs_max(const double* x, std::int64_t n);

// Exponent that an infinite maximum gives; its scale is infinite, its inverse scale zero.
inline constexpr int kInfiniteExponent = 4096;

// ceil(log2(max(amax, 1e-4) / 448)): smallest e with amax <= 448 * 2^e.
// scale_floor: 1e-8 in the place of 1e-4.
int fp8_scale_exponent(double amax, std::int32_t scale_floor = AS_SCALE_FLOOR_1E4);
// ceil(log2(max(amax, 6 * 2^-126) / 6)): smallest e with amax <= 6 * 2^e.
// fp4_rule AS_FP4_DOWN: ceil(log2(max(amax / 6, 1e-4))).
int fp4_scale_exponent(double amax, std::int32_t fp4_rule = AS_FP4_EVEN);
// 2^-exponent; 0 under an infinite scale, so that finite values become 0 and infinite ones NaN.
double inverse_scale(int exponent);

}  // namespace attnscope::reference
