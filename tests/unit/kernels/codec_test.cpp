// Number formats: all codes, reference points of the scales, ties, whole rows.
#include <algorithm>
#include <limits>

#include "tests/unit/kernels/support.h"

namespace attnscope::kernel_tests {
namespace codec_test {

double e4m3_by_definition(int code) {
  const int exponent = code >> 3 & 15;
  const int mantissa = code & 7;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

TEST(Codec, E4m3CodesDecodeByDefinitionAndEncodeBack) {
  for (int code = 0; code < 256; ++code) {
    const float value = cpu::e4m3_to_float(static_cast<std::uint8_t>(code));
    if ((code & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(value)) << code;
    } else {
      EXPECT_EQ(static_cast<double>(value), e4m3_by_definition(code)) << code;
    }
    // NaN has one code: the sign of inf * 0 differs between machines.
    EXPECT_EQ(cpu::float_to_e4m3(value), code == 0xff ? 0x7f : code);
  }
}

TEST(Codec, E4m3SpotValues) {
  const std::vector<std::pair<int, float>> spots = {
      {0x00, 0.0f},   {0x01, 0x1p-9f}, {0x08, 0x1p-6f}, {0x38, 1.0f},   {0x78, 256.0f},
      {0x7e, 448.0f}, {0x80, -0.0f},   {0xb8, -1.0f},   {0xfe, -448.0f}};
  for (const auto& [code, value] : spots) {
    EXPECT_EQ(cpu::e4m3_to_float(static_cast<std::uint8_t>(code)), value);
    EXPECT_EQ(cpu::float_to_e4m3(value), code);
  }
}

TEST(Codec, E4m3RoundsToNearestEvenAndSaturates) {
  for (int code = 0; code < 0x7e; ++code) {
    const double low = e4m3_by_definition(code);
    const double high = e4m3_by_definition(code + 1);
    const auto middle = static_cast<float>((low + high) / 2);
    const int even = code % 2 == 0 ? code : code + 1;
    EXPECT_EQ(cpu::float_to_e4m3(middle), even);
    EXPECT_EQ(cpu::float_to_e4m3(-middle), even | 0x80);
    EXPECT_EQ(cpu::float_to_e4m3(std::nextafter(middle, 0.0f)), code);
    EXPECT_EQ(cpu::float_to_e4m3(std::nextafter(middle, 1e9f)), code + 1);
  }
  for (float large : {449.0f, 463.9f, 464.0f, 1e30f, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(cpu::float_to_e4m3(large), 0x7e);
    EXPECT_EQ(cpu::float_to_e4m3(-large), 0xfe);
  }
}

TEST(Codec, LatentScaleReferencePoints) {
  const std::vector<std::pair<float, int>> points = {
      {0.0f, 105},   {1e-4f, 105},      {0.01f, 112},  {0.1f, 115},   {1.0f, 119},
      {1.75f, 119},  {1.7578125f, 120}, {2.0f, 120},   {3.5f, 120},   {7.0f, 121},
      {100.0f, 125}, {448.0f, 127},     {450.0f, 128}, {1000.0f, 129}};
  for (const auto& [amax, byte] : points) {
    const float value = cpu::round_bf16(amax);
    EXPECT_EQ(cpu::exponent_to_ue8m0(cpu::fp8_exponent(value)), byte) << amax;
  }
  EXPECT_EQ(cpu::exponent_to_ue8m0(cpu::fp8_exponent(cpu::round_bf16(449.0f))), 127);
  const float largest = cpu::bf16_to_float(0x7f7f);
  EXPECT_EQ(cpu::exponent_to_ue8m0(cpu::fp8_exponent(largest)), 247);
  EXPECT_EQ(cpu::exponent_to_ue8m0(cpu::fp8_exponent(std::numeric_limits<float>::infinity())), 255);
}

// ceil(log2(amax / 448)) is the least e with amax <= 448 * 2^e.
TEST(Codec, ScaleExponentsAreExactForEveryBf16) {
  for (std::uint32_t bits = 0x0080; bits < 0x7f80; ++bits) {
    const float amax = cpu::bf16_to_float(static_cast<std::uint16_t>(bits));
    const double floored = std::max(static_cast<double>(amax), static_cast<double>(1e-4f));
    const int e8 = cpu::fp8_exponent(amax);
    ASSERT_LE(floored, std::ldexp(448.0, e8)) << bits;
    ASSERT_GT(floored, std::ldexp(448.0, e8 - 1)) << bits;
    const double floored4 = std::max(static_cast<double>(amax), std::ldexp(6.0, -126));
    const int e4 = cpu::mxfp4_exponent(amax);
    ASSERT_LE(floored4, std::ldexp(6.0, e4)) << bits;
    ASSERT_GT(floored4, std::ldexp(6.0, e4 - 1)) << bits;
  }
}

TEST(Codec, CodesOfScaledReferencePoints) {
  float x[64] = {1.0f};
  unsigned char codes[64];
  cpu::encode_e4m3(x, 64, cpu::fp8_exponent(1.0f), codes);
  EXPECT_EQ(cpu::e4m3_to_float(codes[0]), 256.0f);
  x[0] = 1.75f;
  cpu::encode_e4m3(x, 64, cpu::fp8_exponent(1.75f), codes);
  EXPECT_EQ(cpu::e4m3_to_float(codes[0]), 448.0f);
  x[0] = 1.7578125f;
  cpu::encode_e4m3(x, 64, cpu::fp8_exponent(1.7578125f), codes);
  EXPECT_EQ(cpu::e4m3_to_float(codes[0]), 224.0f);
}

TEST(Codec, E2m1CodesAndTies) {
  const float values[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  for (int code = 0; code < 16; ++code) {
    const float value = code < 8 ? values[code] : -values[code - 8];
    EXPECT_EQ(cpu::e2m1_to_float(static_cast<std::uint8_t>(code)), value);
    EXPECT_EQ(cpu::float_to_e2m1(value), code);
  }
  const std::vector<std::pair<float, float>> ties = {{0.25f, 0.0f}, {0.75f, 1.0f}, {1.25f, 1.0f},
                                                     {1.75f, 2.0f}, {2.5f, 2.0f},  {3.5f, 4.0f},
                                                     {5.0f, 4.0f},  {7.0f, 6.0f}};
  for (const auto& [from, to] : ties) {
    EXPECT_EQ(cpu::e2m1_to_float(cpu::float_to_e2m1(from)), to) << from;
    EXPECT_EQ(cpu::e2m1_to_float(cpu::float_to_e2m1(-from)), -to) << from;
  }
}

TEST(Codec, Mxfp4ScaleBytes) {
  const std::vector<std::pair<float, int>> points = {
      {6.0f, 127}, {6.1f, 128}, {3.0f, 126}, {0.0f, 1}};
  for (const auto& [amax, byte] : points) {
    EXPECT_EQ(cpu::exponent_to_ue8m0(cpu::mxfp4_exponent(amax)), byte) << amax;
  }
}

TEST(Codec, OtherFloorsAndTies) {
  const auto byte = [](float amax) {
    return cpu::exponent_to_ue8m0(cpu::fp8_exponent(amax, AS_SCALE_FLOOR_1E8));
  };
  EXPECT_EQ(byte(0.0f), 92);  // ceil(log2(1e-8 / 448)) = -35
  EXPECT_EQ(byte(1e-8f), 92);
  EXPECT_EQ(byte(0x1.cp-23f), 96);  // 448 * 2^-31
  EXPECT_EQ(byte(1.0f), 119);
  EXPECT_EQ(cpu::exponent_to_ue8m0(cpu::mxfp4_exponent(0.0f, AS_FP4_DOWN)), 114);  // 2^-13
  EXPECT_EQ(cpu::exponent_to_ue8m0(cpu::mxfp4_exponent(6.1f, AS_FP4_DOWN)), 128);
  const std::vector<std::pair<float, float>> down = {
      {0.25f, 0.0f}, {0.26f, 0.5f}, {0.75f, 0.5f}, {1.25f, 1.0f}, {1.75f, 1.5f},
      {2.5f, 2.0f},  {3.5f, 3.0f},  {5.0f, 4.0f},  {5.1f, 6.0f},  {7.0f, 6.0f}};
  for (const auto& [from, to] : down) {
    EXPECT_EQ(cpu::e2m1_to_float(cpu::float_to_e2m1_down(from)), to) << from;
    EXPECT_EQ(cpu::e2m1_to_float(cpu::float_to_e2m1_down(-from)), -to) << from;
  }
  EXPECT_EQ(cpu::float_to_e2m1_down(-0.1f), 0);
  EXPECT_EQ(cpu::float_to_e2m1_down(-0.0f), 0);
}

TEST(Codec, Mxfp4RowPacksEvenDimsLow) {
  std::vector<float> row(128, 0.0f);
  row[0] = 1.0f;    // code 2
  row[1] = -6.0f;   // code 15, sets the scale of dims 0-31 to 1
  row[32] = 12.0f;  // scale 2
  unsigned char payload[64];
  unsigned char scales[4];
  cpu::quantise_row(AS_RECORD_INDEX_MXFP4, 128, row.data(), payload, scales);
  EXPECT_EQ(payload[0], 0xf2);
  EXPECT_EQ(payload[16], 0x07);
  EXPECT_EQ(scales[0], 127);
  EXPECT_EQ(scales[1], 128);
  EXPECT_EQ(scales[2], 1);
  std::vector<float> back(128);
  cpu::decode_row(AS_RECORD_INDEX_MXFP4, 128, payload, scales, back.data());
  EXPECT_EQ(back, row);
}

TEST(Codec, LatentRoundTripErrorIsAtMost16Scales) {
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<float> row(512);
    for (float& x : row) x = cpu::round_bf16(normal(random) * std::exp(normal(random)));
    unsigned char payload[576];
    unsigned char scales[8];
    cpu::quantise_row(AS_RECORD_LATENT, 512, row.data(), payload, scales);
    EXPECT_EQ(scales[7], 0);
    std::vector<float> back(512);
    cpu::decode_row(AS_RECORD_LATENT, 512, payload, scales, back.data());
    for (int i = 0; i < 512; ++i) {
      const float bound = i < 448 ? 16.0f * cpu::ue8m0_to_float(scales[i / 64]) : 0.0f;
      ASSERT_LE(std::fabs(back[i] - row[i]), bound) << i;
    }
    unsigned char again[576];
    std::vector<float> values(512);
    cpu::quantise_row(AS_RECORD_LATENT, 512, back.data(), again, scales);
    cpu::decode_row(AS_RECORD_LATENT, 512, again, scales, values.data());
    ASSERT_EQ(values, back);
  }
}

TEST(Codec, IndexScaleIsStoredAsFloat) {
  std::vector<float> row(128, 0.0f);
  row[100] = 7.0f;
  unsigned char payload[128];
  unsigned char scales[4];
  cpu::quantise_row(AS_RECORD_INDEX_FP8, 128, row.data(), payload, scales);
  float scale;
  std::memcpy(&scale, scales, 4);
  EXPECT_EQ(scale, 0x1p-6f);
  EXPECT_EQ(cpu::e4m3_to_float(payload[100]), 448.0f);
}

TEST(Codec, Bf16RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(cpu::float_to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(cpu::float_to_bf16(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(cpu::float_to_bf16(1.0f + 0x3p-8f), 0x3f82);
  EXPECT_EQ(cpu::float_to_bf16(1.0f + 0x1p-8f + 0x1p-20f), 0x3f81);
  EXPECT_TRUE(std::isnan(cpu::round_bf16(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isinf(cpu::round_bf16(3.4e38f)));
  EXPECT_EQ(cpu::round_bf16(1.0 + 0x1p-8), 1.0f);
  EXPECT_EQ(cpu::round_bf16(1.0 + 0x1p-8 + 0x1p-40), 1.0f + 0x1p-7f);  // beside the tie
  EXPECT_EQ(cpu::round_bf16(1.0 + 0x3p-8 - 0x1p-40), 1.0f + 0x1p-7f);
  EXPECT_EQ(cpu::round_bf16(-1.0 - 0x1p-8 - 0x1p-40), -1.0f - 0x1p-7f);
}

}  // namespace codec_test
}  // namespace attnscope::kernel_tests
