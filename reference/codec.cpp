#include "reference/codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "reference/precision.h"

namespace attnscope::reference {

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Code of |x| in a format with `mantissa_bits`, exponent bias `bias` and largest code `largest`.
// Within a binade the codes count steps of 2^(exponent - mantissa_bits), so a carry into the next
// binade needs no special case; below the smallest normal the step stays that of exponent 1 - bias.
std::uint8_t magnitude_code(double magnitude, int mantissa_bits, int bias, int largest) {
  if (magnitude == 0) return 0;
  const int lowest = 1 - bias;
  const int exponent = std::max(std::ilogb(magnitude), lowest);
  const auto steps =
      static_cast<int>(std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent)));
  return static_cast<std::uint8_t>(
      std::min(((exponent - lowest) << mantissa_bits) + steps, largest));
}

std::array<double, 256> e4m3_table() {
  std::array<double, 256> table{};
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15;
    const int mantissa = code & 7;
    double value =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    if (exponent == 15 && mantissa == 7) value = kNaN;
    table[static_cast<std::size_t>(code)] = code & 0x80 ? -value : value;
  }
  return table;
}

// Smallest e with amax <= limit * 2^e, for limit = fraction * 2^limit_exponent, fraction in
// [1/2, 1).
int scale_exponent(double amax, double fraction, int limit_exponent) {
  if (std::isinf(amax)) return kInfiniteExponent;
  int exponent = 0;
  const double amax_fraction = std::frexp(amax, &exponent);
  return exponent - limit_exponent + (amax_fraction > fraction ? 1 : 0);
}

}  // namespace

std::uint16_t bf16_bits(double x) {
  const auto value = static_cast<float>(round_to_bf16(x));
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
}

std::uint16_t f16_bits(double x) {
  const int sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return static_cast<std::uint16_t>(sign | 0x7E00);
  const double magnitude = std::fabs(x);
  if (magnitude >= 65520) return static_cast<std::uint16_t>(sign | 0x7C00);
  // Steps of 2^-10 of the binade, 2^-24 below the smallest one. A carry raises the exponent.
  const int exponent = magnitude < 0x1p-14 ? -14 : std::ilogb(magnitude);
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  const int code = steps + (magnitude < 0x1p-14 ? 0 : (exponent + 14) * 1024);
  return static_cast<std::uint16_t>(sign | code);
}

double f16_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double value = std::ldexp(exponent > 0 ? fraction + 1024 : fraction, std::max(exponent, 1) - 25);
  if (exponent == 31) value = fraction == 0 ? HUGE_VAL : std::nan("");
  return (bits & 0x8000) != 0 ? -value : value;
}

std::uint8_t e4m3_code(double x) {
  if (std::isnan(x)) return 0x7F;
  const double magnitude = std::min(std::fabs(x), 448.0);
  const int sign = std::signbit(x) ? 0x80 : 0;
  return static_cast<std::uint8_t>(sign | magnitude_code(magnitude, 3, 7, 0x7E));
}

double e4m3_value(std::uint8_t code) {
  static const std::array<double, 256> table = e4m3_table();
  return table[code];
}

std::uint8_t e2m1_code(double x) {
  if (std::isnan(x)) return 7;
  const double magnitude = std::min(std::fabs(x), 6.0);
  const int sign = std::signbit(x) ? 8 : 0;
  return static_cast<std::uint8_t>(sign | magnitude_code(magnitude, 1, 1, 7));
}

std::uint8_t e2m1_code_down(double x) {
  if (std::isnan(x)) return 7;
  // The highest code whose lower neighbour is strictly farther away.
  int code = 7;
  while (code > 0) {
    const double here = e2m1_value(static_cast<std::uint8_t>(code));
    const double below = e2m1_value(static_cast<std::uint8_t>(code - 1));
    if (std::fabs(x) - below > here - std::fabs(x)) break;
    --code;
  }
  return static_cast<std::uint8_t>(code > 0 && std::signbit(x) ? code | 8 : code);
}

double e2m1_value(std::uint8_t code) {
  constexpr double kMagnitudes[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const double magnitude = kMagnitudes[code & 7];
  return code & 8 ? -magnitude : magnitude;
}

double ue8m0_value(std::uint8_t byte) { return byte == 255 ? kNaN : std::ldexp(1.0, byte - 127); }

std::uint8_t ue8m0_byte(int exponent) {
  return static_cast<std::uint8_t>(std::clamp(exponent + 127, 0, 255));
}

double abs_max(const double* x, std::int64_t n) {
  double result = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    if (std::fabs(x[i]) > result) result = std::fabs(x[i]);
  }
  return result;
}

int fp8_scale_exponent(double amax, std::int32_t scale_floor) {
  const double floor = scale_floor == AS_SCALE_FLOOR_1E8 ? 1e-8 : 1e-4;
  return scale_exponent(std::max(amax, floor), 0.875, 9);  // 448 = 0.875 * 2^9
}

int fp4_scale_exponent(double amax, std::int32_t fp4_rule) {
  const double floor = fp4_rule == AS_FP4_DOWN ? 6 * 1e-4 : 0x1.8p-124;  // or 6 * 2^-126
  return scale_exponent(std::max(amax, floor), 0.75, 3);                 // 6 = 0.75 * 2^3
}

double inverse_scale(int exponent) {
  return exponent == kInfiniteExponent ? 0.0 : std::ldexp(1.0, -exponent);
}

}  // namespace attnscope::reference
