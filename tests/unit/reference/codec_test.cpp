
#include <cmath>
#include <cstring>

#include "tests/unit/reference/lane_test.h"
#include "tests/unit/reference/plain_codec.h"

namespace attnscope::reference {
namespace codec_test {

TEST(Bf16, EveryValueRoundsToItself) {
  for (int bits = 0; bits < 65536; ++bits) {
    const auto b = static_cast<std::uint16_t>(bits);
    const double value = bf16_value(b);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(bf16_value(bf16_bits(value))));
    } else {
      ASSERT_EQ(bf16_bits(value), b);
    }
  }
}

// Between neighbours a < b: below the middle to a, above it to b, on it to the even one.
TEST(Bf16, RoundsToNearestEvenInOneStep) {
  for (int bits = 0; bits < 0x7F7F; ++bits) {
    const double a = bf16_value(static_cast<std::uint16_t>(bits));
    const double b = bf16_value(static_cast<std::uint16_t>(bits + 1));
    const double middle = (a + b) / 2;
    ASSERT_EQ(round_to_bf16(middle), bits % 2 == 0 ? a : b) << bits;
    // A last-place step off the middle is lost by a detour over binary32, which would tie.
    ASSERT_EQ(round_to_bf16(std::nextafter(middle, a)), a) << bits;
    ASSERT_EQ(round_to_bf16(std::nextafter(middle, b)), b) << bits;
    ASSERT_EQ(round_to_bf16(-std::nextafter(middle, b)), -b) << bits;
  }
}

TEST(Bf16, Overflow) {
  const double largest = 0x1.FEp127;
  EXPECT_EQ(round_to_bf16(largest), largest);
  EXPECT_EQ(round_to_bf16(std::nextafter(0x1.FFp127, 0)), largest);
  EXPECT_EQ(round_to_bf16(0x1.FFp127), kInf);
  EXPECT_EQ(round_to_bf16(-1e300), -kInf);
  EXPECT_EQ(round_to_bf16(-kInf), -kInf);
  EXPECT_TRUE(std::isnan(round_to_bf16(kNaN)));
  EXPECT_EQ(round_to_bf16(1e-300), 0);
  EXPECT_TRUE(std::signbit(round_to_bf16(-1e-300)));
}

TEST(E4m3, SpotValues) {
  EXPECT_EQ(e4m3_value(0x00), 0);
  EXPECT_EQ(e4m3_value(0x01), std::ldexp(1, -9));
  EXPECT_EQ(e4m3_value(0x08), std::ldexp(1, -6));
  EXPECT_EQ(e4m3_value(0x38), 1);
  EXPECT_EQ(e4m3_value(0x78), 256);
  EXPECT_EQ(e4m3_value(0x7E), 448);
  EXPECT_TRUE(std::isnan(e4m3_value(0x7F)));
  EXPECT_EQ(e4m3_value(0x80), 0);
  EXPECT_TRUE(std::signbit(e4m3_value(0x80)));
  EXPECT_EQ(e4m3_value(0xB8), -1);
  EXPECT_EQ(e4m3_value(0xFE), -448);
  EXPECT_TRUE(std::isnan(e4m3_value(0xFF)));
}

TEST(E4m3, EveryCodeRoundTrips) {
  for (int code = 0; code < 256; ++code) {
    const auto c = static_cast<Byte>(code);
    if ((code & 0x7F) == 0x7F) {
      EXPECT_EQ(e4m3_code(e4m3_value(c)), 0x7F);
    } else {
      EXPECT_EQ(e4m3_code(e4m3_value(c)), c);
    }
  }
}

TEST(E4m3, RoundsToNearestEvenAndSaturates) {
  for (int code = 0; code < 0x7E; ++code) {
    const double a = e4m3_value(static_cast<Byte>(code));
    const double b = e4m3_value(static_cast<Byte>(code + 1));
    const double middle = (a + b) / 2;
    EXPECT_EQ(e4m3_code(middle), code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(e4m3_code(std::nextafter(middle, 0)), code);
    EXPECT_EQ(e4m3_code(std::nextafter(middle, 1000)), code + 1);
    EXPECT_EQ(e4m3_code(-std::nextafter(middle, 1000)), (code + 1) | 0x80);
  }
  EXPECT_EQ(e4m3_code(449), 0x7E);
  EXPECT_EQ(e4m3_code(464), 0x7E);
  EXPECT_EQ(e4m3_code(kInf), 0x7E);
  EXPECT_EQ(e4m3_code(-1e30), 0xFE);
  EXPECT_EQ(e4m3_code(-0.0), 0x80);
  EXPECT_EQ(e4m3_code(0x1p-11), 0);
}

TEST(E2m1, CodesAndTies) {
  for (int code = 0; code < 16; ++code) {
    EXPECT_EQ(e2m1_code(e2m1_value(static_cast<Byte>(code))), code);
  }
  const double ties[][2] = {{0.25, 0}, {0.75, 1}, {1.25, 1}, {1.75, 2}, {2.5, 2}, {3.5, 4}, {5, 4}};
  for (const auto& [x, expected] : ties) {
    EXPECT_EQ(e2m1_value(e2m1_code(x)), expected) << x;
    EXPECT_EQ(e2m1_value(e2m1_code(-x)), -expected) << x;
  }
  EXPECT_EQ(e2m1_value(e2m1_code(100)), 6);
  EXPECT_EQ(e2m1_code(-0.1), 8);
  EXPECT_EQ(e2m1_code(kNaN), 7);
}

TEST(Ue8m0, ScalesOfFp8Blocks) {
  const double points[][2] = {{0, 105},   {1e-4, 105}, {0.01, 112},      {0.1, 115},
                              {1.0, 119}, {1.75, 119}, {1.7578125, 120}, {2, 120},
                              {3.5, 120}, {7, 121},    {100, 125},       {448, 127},
                              {450, 128}, {1000, 129}, {0x1.FEp127, 247}};
  for (const auto& [amax, byte] : points) {
    EXPECT_EQ(ue8m0_byte(fp8_scale_exponent(round_to_bf16(amax))), byte) << amax;
  }
  EXPECT_EQ(e4m3_value(e4m3_code(1.0 * inverse_scale(fp8_scale_exponent(1.0)))), 256);
  EXPECT_EQ(e4m3_value(e4m3_code(1.75 * inverse_scale(fp8_scale_exponent(1.75)))), 448);
  EXPECT_EQ(e4m3_value(e4m3_code(1.7578125 * inverse_scale(fp8_scale_exponent(1.7578125)))), 224);
  EXPECT_EQ(ue8m0_byte(fp8_scale_exponent(kInf)), 255);
  EXPECT_TRUE(std::isnan(ue8m0_value(255)));
  EXPECT_EQ(ue8m0_value(127), 1);
  EXPECT_EQ(ue8m0_value(0), 0x1p-127);
}

TEST(Ue8m0, ScalesOfFp4Blocks) {
  EXPECT_EQ(ue8m0_byte(fp4_scale_exponent(6)), 127);
  EXPECT_EQ(ue8m0_byte(fp4_scale_exponent(6.1)), 128);
  EXPECT_EQ(ue8m0_byte(fp4_scale_exponent(3)), 126);
  EXPECT_EQ(ue8m0_byte(fp4_scale_exponent(0)), 1);
}

TEST(Ue8m0, OtherFloorsAndTies) {
  EXPECT_EQ(ue8m0_byte(fp8_scale_exponent(0, AS_SCALE_FLOOR_1E8)), 92);
  EXPECT_EQ(ue8m0_byte(fp8_scale_exponent(0x1.Cp-23, AS_SCALE_FLOOR_1E8)), 96);
  EXPECT_EQ(ue8m0_byte(fp8_scale_exponent(1, AS_SCALE_FLOOR_1E8)), 119);
  EXPECT_EQ(ue8m0_byte(fp4_scale_exponent(0, AS_FP4_DOWN)), 114);
  EXPECT_EQ(ue8m0_byte(fp4_scale_exponent(6.1, AS_FP4_DOWN)), 128);
  const double down[][2] = {{0.25, 0}, {0.26, 0.5}, {0.75, 0.5}, {1.25, 1}, {1.75, 1.5},
                            {2.5, 2},  {3.5, 3},    {5, 4},      {5.1, 6},  {7, 6}};
  for (const auto& [from, to] : down) {
    EXPECT_EQ(e2m1_value(e2m1_code_down(from)), to) << from;
    EXPECT_EQ(e2m1_value(e2m1_code_down(-from)), -to) << from;
  }
  EXPECT_EQ(e2m1_code_down(-0.1), 0);
  EXPECT_EQ(e2m1_code_down(-0.0), 0);
}

// The exponent equals ceil(log2(amax / 448)) for every bf16 value, where log2 is safe to evaluate.
TEST(Ue8m0, ExponentIsTheCeilingOfTheLogarithm) {
  for (int bits = 0; bits < 0x7F80; ++bits) {
    const double amax = std::max(bf16_value(static_cast<std::uint16_t>(bits)), 1e-4);
    const int e = fp8_scale_exponent(amax);
    EXPECT_LE(amax, std::ldexp(448, e));
    EXPECT_GT(amax, std::ldexp(448, e - 1));
  }
}

TEST(LatentRecord, RoundTripStaysWithinHalfAStep) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    Doubles row = normal(512, seed, std::exp2(static_cast<int>(seed) - 25));
    round_to_bf16(row.data(), 512);
    Byte payload[576];
    Byte scales[8];
    encode_record(AS_RECORD_LATENT, 512, row.data(), payload, scales);
    Doubles back(512);
    decode_record(AS_RECORD_LATENT, 512, payload, scales, back.data());
    EXPECT_EQ(scales[7], 0);
    for (std::size_t i = 0; i < 448; ++i) {
      EXPECT_LE(std::fabs(back[i] - row[i]), 16 * ue8m0_value(scales[i / 64]));
    }
    for (std::size_t i = 448; i < 512; ++i) EXPECT_EQ(back[i], row[i]);
  }
}

TEST(LatentRecord, BytesOfAKnownRow) {
  Doubles row(512, 0.0);
  row[0] = 1.0;
  row[1] = -0.5;
  row[63] = 1.75;   // block 0: exponent -8
  row[64] = 7;      // block 1: exponent -6
  row[448] = 1.0;   // bf16 0x3F80
  row[511] = -2.0;  // bf16 0xC000
  Byte payload[576];
  Byte scales[8];
  encode_record(AS_RECORD_LATENT, 512, row.data(), payload, scales);
  EXPECT_EQ(scales[0], 119);
  EXPECT_EQ(scales[1], 121);
  for (int b = 2; b < 7; ++b) EXPECT_EQ(scales[b], 105);
  EXPECT_EQ(payload[0], 0x78);  // 256
  EXPECT_EQ(payload[1], 0xF0);  // -128
  EXPECT_EQ(payload[2], 0x00);
  EXPECT_EQ(payload[63], 0x7E);  // 448
  EXPECT_EQ(payload[64], 0x7E);
  EXPECT_EQ(payload[448], 0x80);
  EXPECT_EQ(payload[449], 0x3F);
  EXPECT_EQ(payload[574], 0x00);
  EXPECT_EQ(payload[575], 0xC0);
}

TEST(LatentRecord, NaNAndInfinityStayInTheirPlaces) {
  Doubles row(512, 1.0);
  row[3] = kNaN;
  row[64] = kInf;
  row[500] = kNaN;
  Byte payload[576];
  Byte scales[8];
  encode_record(AS_RECORD_LATENT, 512, row.data(), payload, scales);
  EXPECT_EQ(scales[0], 119);  // the NaN does not raise the maximum
  EXPECT_EQ(payload[3], 0x7F);
  EXPECT_EQ(payload[4], 0x78);
  EXPECT_EQ(scales[1], 255);
  EXPECT_EQ(payload[64], 0x7F);
  EXPECT_EQ(payload[65], 0x00);
  Doubles back(512);
  decode_record(AS_RECORD_LATENT, 512, payload, scales, back.data());
  EXPECT_TRUE(std::isnan(back[3]));
  EXPECT_EQ(back[4], 1);
  EXPECT_TRUE(std::isnan(back[500]));
}

TEST(IndexRecords, RoundTrip) {
  Doubles row = normal(128, 7, 3);
  round_to_bf16(row.data(), 128);
  Byte payload[128];
  Byte scales[4];
  Doubles back(128);
  encode_record(AS_RECORD_INDEX_FP8, 128, row.data(), payload, scales);
  decode_record(AS_RECORD_INDEX_FP8, 128, payload, scales, back.data());
  float scale;
  std::memcpy(&scale, scales, 4);
  EXPECT_EQ(scale, std::ldexp(1.0F, fp8_scale_exponent(abs_max(row.data(), 128))));
  for (std::size_t i = 0; i < 128; ++i) EXPECT_LE(std::fabs(back[i] - row[i]), 16 * scale);

  encode_record(AS_RECORD_INDEX_MXFP4, 128, row.data(), payload, scales);
  decode_record(AS_RECORD_INDEX_MXFP4, 128, payload, scales, back.data());
  for (std::size_t i = 0; i < 128; ++i) {
    EXPECT_LE(std::fabs(back[i] - row[i]), ue8m0_value(scales[i / 32]));
  }
}

TEST(IndexRecords, EvenDimsAreInTheLowNibble) {
  Doubles row(128, 0.0);
  row[0] = 6;
  row[1] = -1;
  row[33] = 3;
  Byte payload[64];
  Byte scales[4];
  encode_record(AS_RECORD_INDEX_MXFP4, 128, row.data(), payload, scales);
  EXPECT_EQ(scales[0], 127);
  EXPECT_EQ(scales[1], 126);
  EXPECT_EQ(scales[2], 1);
  EXPECT_EQ(payload[0], 0xA7);  // -1 is code 10, 6 is code 7
  EXPECT_EQ(payload[16], 0x70);
}

}  // namespace codec_test
}  // namespace attnscope::reference
