// Number formats and records of the caches, element by element, beside which the references' tensor
// programs are held. Arithmetic in float64, where every value of these formats and every scaled
// value is exact.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/params/numeric_rules.h"

namespace attnscope::reference {

// Nearest bf16 value; overflow gives infinity, NaN stays NaN.
double round_to_bf16(double x);
void round_to_bf16(double* x, std::int64_t n);
double round_to_fp32(double x);

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

// What published code does in more than one way.
struct PlainQuantiser {
  std::int32_t scale_floor = AS_SCALE_FLOOR_1E4;
  std::int32_t fp4_rule = AS_FP4_EVEN;
};

// Values <-> one record. Payload and scales lie as in kernels/layout/records.h; `scales` is unused
// for STATE records.
void encode_record(std::int32_t record, std::int64_t width, const double* values,
                   std::uint8_t* payload, std::uint8_t* scales,
                   const PlainQuantiser& quantiser = {});
void decode_record(std::int32_t record, std::int64_t width, const std::uint8_t* payload,
                   const std::uint8_t* scales, double* values);

// e4m3 codes of one block under a common scale 2^e; returns e.
int encode_fp8(const double* values, std::int64_t n, std::uint8_t* codes,
               std::int32_t scale_floor = AS_SCALE_FLOOR_1E4);

// The 32-dim blocks of an index query or key: packed codes and one UE8M0 byte a block.
void encode_mxfp4(const double* values, std::int64_t n, std::uint8_t* packed, std::uint8_t* scales,
                  std::int32_t fp4_rule = AS_FP4_EVEN);
void decode_mxfp4(const std::uint8_t* packed, const std::uint8_t* scales, std::int64_t n,
                  double* values);

}  // namespace attnscope::reference
