#include "kernels/cpu/codec.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/layout/mla_rows.h"
#include "kernels/layout/records.h"

namespace attnscope::cpu {
namespace {

std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

constexpr float kE2m1[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};

// ceil(log2(amax / (mantissa * 2^shift))) for 1 <= mantissa < 2: amax = m * 2^e exceeds
// mantissa * 2^e exactly when m > mantissa.
int ceil_log2_ratio(float amax, float mantissa, int shift) {
  if (std::isinf(amax)) return kInfiniteExponent;
  int exponent;
  const float half = std::frexp(amax, &exponent);  // [0.5, 1)
  return exponent - 1 - shift + (half * 2.0f > mantissa ? 1 : 0);
}

float scale_down(float value, int exponent) {
  if (exponent >= kInfiniteExponent) return value * 0.0f;
  return value * exp2i(-exponent);
}

void quantise_mxfp4(const float* row, std::int32_t rule, unsigned char* payload,
                    unsigned char* scales) {
  const auto encode = rule == AS_FP4_DOWN ? float_to_e2m1_down : float_to_e2m1;
  for (int block = 0; block < AS_INDEX_DIM / AS_MXFP4_BLOCK; ++block) {
    const float* x = row + block * AS_MXFP4_BLOCK;
    const int exponent = mxfp4_exponent(abs_max(x, AS_MXFP4_BLOCK), rule);
    scales[block] = exponent_to_ue8m0(exponent);
    for (int i = 0; i < AS_MXFP4_BLOCK; i += 2) {
      const unsigned low = encode(scale_down(x[i], exponent));
      const unsigned high = encode(scale_down(x[i + 1], exponent));
      payload[(block * AS_MXFP4_BLOCK + i) / 2] = static_cast<unsigned char>(low | high << 4);
    }
  }
}

}  // namespace

float exp2i(int exponent) {
  if (exponent > 127) return std::numeric_limits<float>::infinity();
  if (exponent >= -126) return float_of(static_cast<std::uint32_t>(exponent + 127) << 23);
  if (exponent >= -149) return float_of(1u << (exponent + 149));
  return 0.0f;
}

float e4m3_to_float(std::uint8_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80u) << 24;
  const std::uint32_t magnitude = code & 0x7fu;
  if (magnitude == 0x7fu) return float_of(sign | 0x7fc00000u);
  if (magnitude < 8) {
    const float value = static_cast<float>(magnitude) * 0x1p-9f;
    return sign != 0 ? -value : value;
  }
  return float_of(sign | ((magnitude << 20) + (120u << 23)));
}

float f16_to_float(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return float_of(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  // The exponent's bias is 112 less; the product is exact, subnormals too.
  const float value = float_of(magnitude << 13) * 0x1p112f;
  return sign != 0 ? -value : value;
}

std::uint16_t float_to_f16(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<std::uint16_t>(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  }
  if (magnitude >= bits_of(65520.0f)) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (magnitude < bits_of(0x1p-14f)) {
    // Adding 1/2 leaves the multiple of 2^-24 nearest to |value| in the low bits.
    const std::uint32_t steps = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
    return static_cast<std::uint16_t>(sign | steps);
  }
  const std::uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded - (112u << 23)) >> 13));
}

std::uint8_t float_to_e4m3(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t sign = bits >> 24 & 0x80u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7f;
  if (magnitude >= bits_of(448.0f)) return static_cast<std::uint8_t>(sign | 0x7eu);
  if (magnitude < bits_of(0x1p-6f)) {
    // Adding 2^14 leaves the multiple of 2^-9 nearest to |value| in the low bits.
    const std::uint32_t steps = bits_of(float_of(magnitude) + 16384.0f) - bits_of(16384.0f);
    return static_cast<std::uint8_t>(sign | steps);
  }
  const std::uint32_t rounded = magnitude + 0x7ffffu + (magnitude >> 20 & 1u);
  return static_cast<std::uint8_t>(sign | ((rounded - (120u << 23)) >> 20));
}

float e2m1_to_float(std::uint8_t code) {
  const float value = kE2m1[code & 7u];
  return (code & 8u) != 0 ? -value : value;
}

std::uint8_t float_to_e2m1(float value) {
  if (value != value) return 7;
  const unsigned sign = std::signbit(value) ? 8u : 0u;
  const float a = std::fabs(value);
  unsigned code = 7;
  if (a <= 0.25f) {
    code = 0;
  } else if (a < 0.75f) {
    code = 1;
  } else if (a <= 1.25f) {
    code = 2;
  } else if (a < 1.75f) {
    code = 3;
  } else if (a <= 2.5f) {
    code = 4;
  } else if (a < 3.5f) {
    code = 5;
  } else if (a <= 5.0f) {
    code = 6;
  }
  return static_cast<std::uint8_t>(sign | code);
}

std::uint8_t float_to_e2m1_down(float value) {
  if (value != value) return 7;
  // Upper ends of the codes 0 to 6.
  constexpr float kUpTo[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  unsigned code = 0;
  while (code < 7 && std::fabs(value) > kUpTo[code]) ++code;
  return static_cast<std::uint8_t>(code != 0 && std::signbit(value) ? code | 8u : code);
}

float ue8m0_to_float(std::uint8_t code) {
  if (code == 255) return std::numeric_limits<float>::quiet_NaN();
  return exp2i(static_cast<int>(code) - 127);
}

std::uint8_t exponent_to_ue8m0(int exponent) {
  return static_cast<std::uint8_t>(std::clamp(exponent + 127, 0, 255));
}

float fp8_floor(std::int32_t scale_floor) {
  return scale_floor == AS_SCALE_FLOOR_1E8    ? kFp8SmallFloor
         : scale_floor == AS_SCALE_FLOOR_1E10 ? kFp8OutputFloor
                                              : kFp8AmaxFloor;
}

int fp8_exponent(float amax, std::int32_t scale_floor) {
  return ceil_log2_ratio(std::max(amax, fp8_floor(scale_floor)), 1.75f, 8);
}

int mxfp4_exponent(float amax, std::int32_t fp4_rule) {
  const float floor = fp4_rule == AS_FP4_DOWN ? kMxfp4LargeFloor : kMxfp4AmaxFloor;
  return ceil_log2_ratio(std::max(amax, floor), 1.5f, 2);
}

float abs_max(const float* x, int n) {
  float amax = 0.0f;
  for (int i = 0; i < n; ++i) {
    const float a = std::fabs(x[i]);
    if (a > amax) amax = a;
  }
  return amax;
}

void encode_e4m3(const float* x, int n, int exponent, unsigned char* codes) {
  for (int i = 0; i < n; ++i) codes[i] = float_to_e4m3(scale_down(x[i], exponent));
}

void quantise_row(std::int32_t record, int width, const float* row, unsigned char* payload,
                  unsigned char* scales, const QuantiseRules& rules) {
  switch (record) {
    case AS_RECORD_LATENT:
      for (int block = 0; block < AS_QUANT_BLOCKS; ++block) {
        const float* x = row + block * AS_QUANT_BLOCK;
        const int exponent = fp8_exponent(abs_max(x, AS_QUANT_BLOCK), rules.scale_floor);
        scales[block] = exponent_to_ue8m0(exponent);
        encode_e4m3(x, AS_QUANT_BLOCK, exponent, payload + block * AS_QUANT_BLOCK);
      }
      scales[AS_QUANT_BLOCKS] = 0;
      for (int i = 0; i < AS_ROPE_DIM; ++i) {
        const std::uint16_t bits = float_to_bf16(row[AS_NOPE_DIM + i]);
        std::memcpy(payload + AS_NOPE_DIM + 2 * i, &bits, sizeof(bits));
      }
      break;
    case AS_RECORD_INDEX_FP8: {
      const int exponent = fp8_exponent(abs_max(row, AS_INDEX_DIM), rules.scale_floor);
      const float scale = exp2i(exponent);
      encode_e4m3(row, AS_INDEX_DIM, exponent, payload);
      std::memcpy(scales, &scale, sizeof(scale));
      break;
    }
    case AS_RECORD_INDEX_MXFP4:
      quantise_mxfp4(row, rules.fp4, payload, scales);
      break;
    case AS_RECORD_STATE:
      std::memcpy(payload, row, sizeof(float) * static_cast<std::size_t>(width));
      break;
    default:
      break;
  }
}

void decode_row(std::int32_t record, int width, const unsigned char* payload,
                const unsigned char* scales, float* out) {
  switch (record) {
    case AS_RECORD_LATENT:
      for (int i = 0; i < AS_NOPE_DIM; ++i) {
        out[i] = e4m3_to_float(payload[i]) * ue8m0_to_float(scales[i / AS_QUANT_BLOCK]);
      }
      for (int i = 0; i < AS_ROPE_DIM; ++i) {
        std::uint16_t bits;
        std::memcpy(&bits, payload + AS_NOPE_DIM + 2 * i, sizeof(bits));
        out[AS_NOPE_DIM + i] = bf16_to_float(bits);
      }
      break;
    case AS_RECORD_INDEX_FP8: {
      float scale;
      std::memcpy(&scale, scales, sizeof(scale));
      for (int i = 0; i < AS_INDEX_DIM; ++i) out[i] = e4m3_to_float(payload[i]) * scale;
      break;
    }
    case AS_RECORD_INDEX_MXFP4:
      for (int i = 0; i < AS_INDEX_DIM; ++i) {
        const unsigned char pair = payload[i / 2];
        const auto code = static_cast<std::uint8_t>(i % 2 == 0 ? pair & 15 : pair >> 4);
        out[i] = e2m1_to_float(code) * ue8m0_to_float(scales[i / AS_MXFP4_BLOCK]);
      }
      break;
    case AS_RECORD_STATE:
      std::memcpy(out, payload, sizeof(float) * static_cast<std::size_t>(width));
      break;
    case AS_RECORD_LATENT_656:  // scales lie between its parts
      for (int i = 0; i < AS_LATENT_656_CODES; ++i) {
        float scale;
        std::memcpy(&scale, payload + AS_LATENT_656_SCALES + 4 * (i / AS_LATENT_656_BLOCK),
                    sizeof(scale));
        out[i] = e4m3_to_float(payload[i]) * scale;
      }
      for (int i = AS_LATENT_656_CODES; i < width; ++i) {
        std::uint16_t bits;
        std::memcpy(&bits, payload + AS_LATENT_656_ROPE + 2 * (i - AS_LATENT_656_CODES),
                    sizeof(bits));
        out[i] = bf16_to_float(bits);
      }
      break;
    case AS_RECORD_BF16:
    case AS_RECORD_BF16 | AS_RECORD_HND:
    case AS_RECORD_F16:
    case AS_RECORD_F16 | AS_RECORD_HND:
      for (int i = 0; i < width; ++i) {
        std::uint16_t bits;
        std::memcpy(&bits, payload + 2 * i, sizeof(bits));
        const bool bf16 = (record & ~AS_RECORD_HND) == AS_RECORD_BF16;
        out[i] = bf16 ? bf16_to_float(bits) : f16_to_float(bits);
      }
      break;
    default:
      break;
  }
}

}  // namespace attnscope::cpu
