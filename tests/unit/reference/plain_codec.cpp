#include "tests/unit/reference/plain_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/layout/records.h"

namespace attnscope::reference {

namespace {

constexpr double kPlainNaN = std::numeric_limits<double>::quiet_NaN();

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
    if (exponent == 15 && mantissa == 7) value = kPlainNaN;
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

constexpr int kDroppedBits = 52 - 7;  // fraction bits of binary64 that bf16 does not have
constexpr double kSmallestNormal = 0x1p-126;
constexpr double kSubnormalStep = 0x1p-133;
constexpr double kLargest = 0x1.FEp127;

}  // namespace

double round_to_bf16(double x) {
  if (std::isnan(x) || std::isinf(x)) return x;
  if (std::fabs(x) < kSmallestNormal) {
    return std::nearbyint(x / kSubnormalStep) * kSubnormalStep;
  }
  // Adding just under half a step, plus the lowest kept bit, carries exactly when nearest-even
  // rounds up.
  auto bits = std::bit_cast<std::uint64_t>(x);
  const std::uint64_t lowest_kept = bits >> kDroppedBits & 1;
  bits += (std::uint64_t{1} << (kDroppedBits - 1)) - 1 + lowest_kept;
  bits &= ~((std::uint64_t{1} << kDroppedBits) - 1);
  const double rounded = std::bit_cast<double>(bits);
  return std::fabs(rounded) > kLargest ? std::copysign(HUGE_VAL, x) : rounded;
}

double round_to_fp32(double x) { return static_cast<double>(static_cast<float>(x)); }

void round_to_bf16(double* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] = round_to_bf16(x[i]);
}

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

double ue8m0_value(std::uint8_t byte) {
  return byte == 255 ? kPlainNaN : std::ldexp(1.0, byte - 127);
}

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

namespace {

void encode_latent(const double* values, std::uint8_t* payload, std::uint8_t* scales,
                   const PlainQuantiser& quantiser) {
  for (int block = 0; block < AS_QUANT_BLOCKS; ++block) {
    const double* x = values + block * AS_QUANT_BLOCK;
    std::uint8_t* codes = payload + block * AS_QUANT_BLOCK;
    scales[block] = ue8m0_byte(encode_fp8(x, AS_QUANT_BLOCK, codes, quantiser.scale_floor));
  }
  scales[AS_QUANT_BLOCKS] = 0;  // pad byte
  for (int i = 0; i < AS_ROPE_DIM; ++i) {
    const std::uint16_t bits = bf16_bits(values[AS_NOPE_DIM + i]);
    std::memcpy(payload + AS_NOPE_DIM + 2 * i, &bits, sizeof(bits));
  }
}

void decode_latent(const std::uint8_t* payload, const std::uint8_t* scales, double* values) {
  for (int block = 0; block < AS_QUANT_BLOCKS; ++block) {
    const double scale = ue8m0_value(scales[block]);
    for (int i = block * AS_QUANT_BLOCK; i < (block + 1) * AS_QUANT_BLOCK; ++i) {
      values[i] = e4m3_value(payload[i]) * scale;
    }
  }
  for (int i = 0; i < AS_ROPE_DIM; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, payload + AS_NOPE_DIM + 2 * i, sizeof(bits));
    values[AS_NOPE_DIM + i] = bf16_value(bits);
  }
}

void encode_index_fp8(const double* values, std::uint8_t* payload, std::uint8_t* scales,
                      const PlainQuantiser& quantiser) {
  const int exponent = encode_fp8(values, AS_INDEX_DIM, payload, quantiser.scale_floor);
  const auto scale = static_cast<float>(std::ldexp(1.0, exponent));
  std::memcpy(scales, &scale, sizeof(scale));
}

void decode_index_fp8(const std::uint8_t* payload, const std::uint8_t* scales, double* values) {
  float scale;
  std::memcpy(&scale, scales, sizeof(scale));
  for (int i = 0; i < AS_INDEX_DIM; ++i) values[i] = e4m3_value(payload[i]) * scale;
}

}  // namespace

int encode_fp8(const double* values, std::int64_t n, std::uint8_t* codes,
               std::int32_t scale_floor) {
  const int exponent = fp8_scale_exponent(abs_max(values, n), scale_floor);
  const double inverse = inverse_scale(exponent);
  for (std::int64_t i = 0; i < n; ++i) codes[i] = e4m3_code(values[i] * inverse);
  return exponent;
}

void encode_mxfp4(const double* values, std::int64_t n, std::uint8_t* packed, std::uint8_t* scales,
                  std::int32_t fp4_rule) {
  const auto code = fp4_rule == AS_FP4_DOWN ? e2m1_code_down : e2m1_code;
  for (std::int64_t block = 0; block < n / AS_MXFP4_BLOCK; ++block) {
    const double* x = values + block * AS_MXFP4_BLOCK;
    const int exponent = fp4_scale_exponent(abs_max(x, AS_MXFP4_BLOCK), fp4_rule);
    scales[block] = ue8m0_byte(exponent);
    const double inverse = inverse_scale(exponent);
    std::uint8_t* bytes = packed + block * AS_MXFP4_BLOCK / 2;
    for (int i = 0; i < AS_MXFP4_BLOCK; i += 2) {
      const std::uint8_t even = code(x[i] * inverse);
      const std::uint8_t odd = code(x[i + 1] * inverse);
      bytes[i / 2] = static_cast<std::uint8_t>(even | odd << 4);
    }
  }
}

void decode_mxfp4(const std::uint8_t* packed, const std::uint8_t* scales, std::int64_t n,
                  double* values) {
  for (std::int64_t i = 0; i < n; i += 2) {
    const double scale = ue8m0_value(scales[i / AS_MXFP4_BLOCK]);
    values[i] = e2m1_value(packed[i / 2] & 15) * scale;
    values[i + 1] = e2m1_value(packed[i / 2] >> 4) * scale;
  }
}

void encode_record(std::int32_t record, std::int64_t width, const double* values,
                   std::uint8_t* payload, std::uint8_t* scales, const PlainQuantiser& quantiser) {
  switch (record) {
    case AS_RECORD_LATENT:
      return encode_latent(values, payload, scales, quantiser);
    case AS_RECORD_INDEX_FP8:
      return encode_index_fp8(values, payload, scales, quantiser);
    case AS_RECORD_INDEX_MXFP4:
      return encode_mxfp4(values, AS_INDEX_DIM, payload, scales, quantiser.fp4_rule);
    default:
      for (std::int64_t i = 0; i < width; ++i) {
        const auto value = static_cast<float>(values[i]);
        std::memcpy(payload + 4 * i, &value, sizeof(value));
      }
  }
}

void decode_record(std::int32_t record, std::int64_t width, const std::uint8_t* payload,
                   const std::uint8_t* scales, double* values) {
  switch (record) {
    case AS_RECORD_LATENT:
      return decode_latent(payload, scales, values);
    case AS_RECORD_INDEX_FP8:
      return decode_index_fp8(payload, scales, values);
    case AS_RECORD_INDEX_MXFP4:
      return decode_mxfp4(payload, scales, AS_INDEX_DIM, values);
    default:
      for (std::int64_t i = 0; i < width; ++i) {
        float value;
        std::memcpy(&value, payload + 4 * i, sizeof(value));
        values[i] = value;
      }
  }
}

}  // namespace attnscope::reference
