// Every SIMD level that this machine runs, against float64 and against the scalar codec.
#include "kernels/cpu/simd/simd.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>

#include "tests/unit/kernels/support.h"

namespace attnscope::kernel_tests {
namespace simd_test {

using cpu::simd::Kernels;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class SimdLevel : public ::testing::TestWithParam<int> {
 protected:
  const Kernels& simd() const { return *cpu::simd::runnable_levels().items[GetParam()]; }
  Random random_{51};
};

TEST_P(SimdLevel, GemmOverShapes) {
  const std::int64_t shapes[][3] = {{1, 1, 1},    {1, 8, 16},   {1, 19, 100}, {2, 5, 31},
                                    {3, 3, 32},   {6, 4, 512},  {13, 9, 77},  {7, 64, 128},
                                    {1, 9, 1025}, {7, 5, 2048}, {13, 9, 2500}};
  for (const auto& [m, n, k] : shapes) {
    std::vector<float> a(static_cast<std::size_t>(m * k)), b(static_cast<std::size_t>(n * k));
    std::vector<std::uint16_t> a16(a.size()), b16(b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      a[i] = cpu::round_bf16(normal(random_));
      a16[i] = cpu::float_to_bf16(a[i]);
    }
    for (std::size_t i = 0; i < b.size(); ++i) {
      b[i] = cpu::round_bf16(normal(random_));
      b16[i] = cpu::float_to_bf16(b[i]);
    }
    std::vector<float> y(static_cast<std::size_t>(m * n)), y16(y.size());
    simd().gemm_f32(a.data(), k, m, b.data(), k, n, k, y.data(), n);
    simd().gemm_bf16(a16.data(), k, m, b16.data(), k, n, k, y16.data(), n);
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0.0, magnitude = 0.0;
        for (std::int64_t x = 0; x < k; ++x) {
          const double term = static_cast<double>(a[static_cast<std::size_t>(i * k + x)]) *
                              static_cast<double>(b[static_cast<std::size_t>(j * k + x)]);
          sum += term;
          magnitude += std::fabs(term);
        }
        const auto at_ij = static_cast<std::size_t>(i * n + j);
        ASSERT_NEAR(static_cast<double>(y[at_ij]), sum, 1e-6 * magnitude);
        ASSERT_NEAR(static_cast<double>(y16[at_ij]), sum, 1e-6 * magnitude);
      }
      // A row gives the same alone.
      const std::vector<float> batch(y.begin() + i * n, y.begin() + (i + 1) * n);
      const std::vector<float> batch16(y16.begin() + i * n, y16.begin() + (i + 1) * n);
      std::vector<float> alone(batch.size()), alone16(batch.size());
      simd().gemm_f32(a.data() + i * k, k, 1, b.data(), k, n, k, alone.data(), n);
      simd().gemm_bf16(a16.data() + i * k, k, 1, b16.data(), k, n, k, alone16.data(), n);
      EXPECT_EQ(alone, batch);
      EXPECT_EQ(alone16, batch16);
    }
  }
}

TEST_P(SimdLevel, GemmAddAccumulates) {
  for (std::int64_t m : {1, 2, 5, 6, 13}) {
    for (std::int64_t n : {16, 48, 64, 512}) {
      const std::int64_t k = 37;
      std::vector<float> a(static_cast<std::size_t>(m * k)), b(static_cast<std::size_t>(k * n));
      std::vector<float> c(static_cast<std::size_t>(m * n), 2.0f);
      for (float& v : a) v = normal(random_);
      for (float& v : b) v = normal(random_);
      simd().gemm_add(a.data(), k, m, b.data(), n, k, c.data(), n, n);
      for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t j = 0; j < n; ++j) {
          double sum = 2.0;
          for (std::int64_t x = 0; x < k; ++x) {
            sum += static_cast<double>(a[static_cast<std::size_t>(i * k + x)]) *
                   static_cast<double>(b[static_cast<std::size_t>(x * n + j)]);
          }
          ASSERT_NEAR(static_cast<double>(c[static_cast<std::size_t>(i * n + j)]), sum, 2e-5);
        }
      }
    }
  }
}

TEST_P(SimdLevel, ExpIsAccurate) {
  std::vector<float> x;
  for (int i = 0; i <= 11040; ++i) x.push_back(-103.0f + 0.0173f * static_cast<float>(i));
  std::vector<float> y = x;
  simd().exp_sum(y.data(), static_cast<std::int64_t>(y.size()), 0.0f);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    const float nearest = static_cast<float>(exact);
    const double ulp = static_cast<double>(std::nextafter(nearest, kInf) - nearest);
    ASSERT_LE(std::fabs(static_cast<double>(y[i]) - exact), 2.0 * ulp) << x[i];
  }
  std::vector<float> special = {-kInf, kInf, 0.0f, -200.0f, 100.0f, kNan, -kInf};
  const float sum = simd().exp_sum(special.data(), 3, 0.0f);
  EXPECT_TRUE(std::isinf(sum));
  EXPECT_EQ(special[0], 0.0f);
  EXPECT_EQ(special[1], kInf);
  EXPECT_EQ(special[2], 1.0f);
  EXPECT_EQ(special[3], -200.0f);  // beyond the length
  simd().exp_sum(special.data() + 3, 4, 0.0f);
  EXPECT_EQ(special[3], 0.0f);
  EXPECT_EQ(special[4], kInf);
  EXPECT_TRUE(std::isnan(special[5]));
  EXPECT_EQ(special[6], 0.0f);
}

TEST_P(SimdLevel, SoftmaxPartsOverLengths) {
  for (std::int64_t n : {1, 3, 4, 8, 15, 16, 17, 63, 64}) {
    std::vector<float> x(static_cast<std::size_t>(n));
    for (float& v : x) v = normal(random_);
    std::vector<float> y = x;
    const float best = simd().scale_max(y.data(), n, 0.5f);
    EXPECT_EQ(best, *std::max_element(y.begin(), y.end()));
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], x[i] * 0.5f);
    const float sum = simd().exp_sum(y.data(), n, best);
    double exact = 0.0;
    for (float v : x) exact += std::exp(static_cast<double>(v * 0.5f) - static_cast<double>(best));
    EXPECT_NEAR(static_cast<double>(sum) / exact, 1.0, 1e-6);
  }
}

TEST_P(SimdLevel, CodecsMatchTheScalarOnes) {
  std::vector<unsigned char> codes(256), again(256);
  for (int i = 0; i < 256; ++i) codes[static_cast<std::size_t>(i)] = static_cast<unsigned char>(i);
  std::vector<float> values(256);
  simd().decode_e4m3(codes.data(), 1.0f, 256, values.data());
  for (int i = 0; i < 256; ++i) {
    const float expected = cpu::e4m3_to_float(static_cast<std::uint8_t>(i));
    const float got = values[static_cast<std::size_t>(i)];
    EXPECT_TRUE(got == expected || (std::isnan(got) && std::isnan(expected))) << i;
    EXPECT_EQ(std::signbit(got), std::signbit(expected)) << i;
  }
  simd().encode_e4m3(values.data(), 1.0f, 256, again.data());
  codes[0xff] = 0x7f;  // NaN of either sign
  EXPECT_EQ(codes, again);
  // A sweep over all magnitudes, ties included: every bf16, and points between.
  std::vector<float> sweep;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float v = cpu::bf16_to_float(static_cast<std::uint16_t>(bits));
    sweep.push_back(v);
    sweep.push_back(std::nextafter(v, kInf));
  }
  std::vector<unsigned char> bulk(sweep.size());
  simd().encode_e4m3(sweep.data(), 1.0f, static_cast<std::int64_t>(sweep.size()), bulk.data());
  for (std::size_t i = 0; i < sweep.size(); ++i) {
    ASSERT_EQ(bulk[i], cpu::float_to_e4m3(sweep[i])) << sweep[i];
  }
  std::vector<std::uint16_t> narrow(sweep.size());
  simd().to_bf16(sweep.data(), 1.0f, static_cast<std::int64_t>(sweep.size()), narrow.data());
  for (std::size_t i = 0; i < sweep.size(); ++i) {
    ASSERT_EQ(narrow[i], cpu::float_to_bf16(sweep[i])) << sweep[i];
  }
}

// An e5m2 code is the upper byte of an fp16, the nearest one where the lower byte is cut off.
TEST_P(SimdLevel, CodesOfE5m2AreThoseOfFp16) {
  std::vector<unsigned char> codes(256), again(256);
  for (std::size_t i = 0; i < 256; ++i) codes[i] = static_cast<unsigned char>(i);
  std::vector<float> values(256);
  simd().decode_e5m2(codes.data(), 2.0f, 256, values.data());
  for (std::size_t i = 0; i < 256; ++i) {
    const float expected = cpu::f16_to_float(static_cast<std::uint16_t>(i << 8)) * 2.0f;
    EXPECT_TRUE(values[i] == expected || (std::isnan(values[i]) && std::isnan(expected))) << i;
  }
  simd().decode_e5m2(codes.data(), 1.0f, 256, values.data());
  simd().encode_e5m2(values.data(), 256, again.data());
  for (std::size_t i = 0; i < 256; ++i) {
    const std::size_t magnitude = i & 0x7f, sign = i & 0x80;
    const std::size_t expected = magnitude > 0x7c ? 0x7f : magnitude == 0x7c ? (sign | 0x7b) : i;
    EXPECT_EQ(again[i], expected) << i;
  }
  // Between two codes the nearer one, in the middle the even one.
  for (std::size_t i = 0; i < 0x7b; ++i) {
    const float low = values[i], high = values[i + 1], middle = (low + high) / 2;
    const float points[] = {std::nextafter(middle, low), middle, std::nextafter(middle, high)};
    const std::size_t nearest[] = {i, i % 2 == 0 ? i : i + 1, i + 1};
    simd().encode_e5m2(points, 3, again.data());
    for (std::size_t k = 0; k < 3; ++k) EXPECT_EQ(again[k], nearest[k]) << points[k];
  }
  const float large[] = {60000.0f, 1e30f, -1e30f, kInf, -kInf, kNan};
  simd().encode_e5m2(large, 6, again.data());
  EXPECT_EQ(std::vector<unsigned char>(again.begin(), again.begin() + 6),
            (std::vector<unsigned char>{0x7b, 0x7b, 0xfb, 0x7b, 0xfb, 0x7f}));
}

TEST_P(SimdLevel, Int8CodesCountFromTheirZeroPoint) {
  const std::vector<float> x = {-3.0f, -2.5f, -1.5f, 0.0f, 0.5f, 1.5f, 2.5f, 300.0f, -300.0f};
  std::vector<unsigned char> codes(x.size());
  std::vector<float> values(x.size());
  simd().encode_i8(x.data(), -7.0f, static_cast<std::int64_t>(x.size()), codes.data());
  const std::vector<int> expected = {-10, -9, -9, -7, -7, -5, -5, 127, -128};  // ties to even
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(static_cast<std::int8_t>(codes[i]), expected[i]) << x[i];
  }
  simd().decode_i8(codes.data(), 0.5f, -7.0f, static_cast<std::int64_t>(x.size()), values.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(values[i], 0.5f * static_cast<float>(expected[i] + 7)) << i;
  }
}

TEST_P(SimdLevel, RangeReachesToZero) {
  std::vector<float> x(37, 2.0f);
  float low = 9, high = 9;
  simd().range(x.data(), 37, &low, &high);
  EXPECT_EQ(low, 0.0f);
  EXPECT_EQ(high, 2.0f);
  x[36] = -5.0f;
  x[17] = 8.0f;
  simd().range(x.data(), 37, &low, &high);
  EXPECT_EQ(low, -5.0f);
  EXPECT_EQ(high, 8.0f);
  simd().divide(x.data(), 37, 3.0f);
  EXPECT_EQ(x[0], 2.0f / 3.0f);
  EXPECT_EQ(x[36], -5.0f / 3.0f);
}

TEST_P(SimdLevel, AbsMaxIgnoresNan) {
  std::vector<float> x = {1.0f, kNan, -3.0f, 2.0f, kNan};
  EXPECT_EQ(simd().abs_max(x.data(), 5), 3.0f);
  x.assign(40, 0.5f);
  x[37] = -7.0f;
  x[3] = kNan;
  EXPECT_EQ(simd().abs_max(x.data(), 40), 7.0f);
  x[20] = -kInf;
  EXPECT_EQ(simd().abs_max(x.data(), 40), kInf);
}

TEST_P(SimdLevel, ReluWeightedSumKeepsNanAndLength) {
  std::vector<float> dots(3 * 64);
  for (float& v : dots) v = normal(random_);
  dots[5] = kNan;
  const std::vector<float> weights = {0.5f, -2.0f, 1.0f}, scales(64, 0.25f);
  for (std::int64_t n : {1, 7, 16, 33, 64}) {
    std::vector<float> y(64, 9.0f);
    simd().relu_weighted_sum(dots.data(), 64, weights.data(), 3, scales.data(), n, y.data());
    for (std::size_t c = 0; c < 64; ++c) {
      if (static_cast<std::int64_t>(c) >= n) {
        EXPECT_EQ(y[c], 9.0f);
      } else if (c == 5) {
        EXPECT_TRUE(std::isnan(y[c]));
      } else {
        double sum = 0.0;
        for (std::size_t j = 0; j < 3; ++j) {
          sum += std::max(static_cast<double>(dots[j * 64 + c]), 0.0) *
                 static_cast<double>(weights[j]);
        }
        EXPECT_FLOAT_EQ(y[c], static_cast<float>(0.25 * sum));
      }
    }
  }
}

TEST_P(SimdLevel, PoolMasksRowsWithoutPointers) {
  const std::int64_t n = 21;
  std::vector<float> rows(4 * 2 * n);
  for (float& v : rows) v = normal(random_);
  const float* values[4];
  const float* scores[4];
  for (int r = 0; r < 4; ++r) {
    values[r] = rows.data() + r * 2 * n;
    scores[r] = values[r] + n;
  }
  values[1] = scores[1] = nullptr;
  std::vector<float> y(n);
  simd().pool(values, scores, 4, n, y.data());
  for (std::size_t c = 0; c < static_cast<std::size_t>(n); ++c) {
    double sum = 0.0, weight = 0.0;
    for (int r : {0, 2, 3}) {
      const double e = std::exp(static_cast<double>(scores[r][c]));
      weight += e;
      sum += e * static_cast<double>(values[r][c]);
    }
    EXPECT_NEAR(static_cast<double>(y[c]), sum / weight, 1e-6);
  }
}

// Scalar twin: NaN first, then in the order of the numbers, both zeros one.
std::uint32_t key_of(float score) {
  if (std::isnan(score)) return 0;
  std::int32_t bits;
  score += 0.0f;
  std::memcpy(&bits, &score, sizeof(bits));
  const auto magnitude = static_cast<std::uint32_t>(bits & 0x7fffffff);
  return bits < 0 ? 0x7fffffffu - magnitude : 0x80000000u + magnitude;
}

TEST_P(SimdLevel, KeysAreCollectedInOrder) {
  for (std::int64_t n : {16, 31, 64, 100, 333}) {
    std::vector<float> x(static_cast<std::size_t>(n));
    for (float& v : x) v = normal(random_);
    const float special[] = {kNan, -kNan, kInf, -kInf, 0.0f, -0.0f, 1e-42f, -1e-42f};
    for (std::size_t i = 0; i < 8; ++i) x[(i * 5 + 1) % x.size()] = special[i];
    std::vector<std::uint32_t> best(16);
    simd().best_keys(x.data(), n, 16, best.data());
    for (std::size_t i = 0; i < 16; ++i) {
      std::uint32_t expected = 0;
      for (std::size_t j = i; j < x.size(); j += 16) expected = std::max(expected, key_of(x[j]));
      EXPECT_EQ(best[i], expected) << i << " of " << n;
    }
    for (const float least : {kNan, -kInf, -0.0f, 0.5f, kInf}) {
      const std::uint32_t bound = key_of(least);
      std::vector<std::uint32_t> keys(x.size() + 16), expected_keys;
      std::vector<std::int32_t> places(x.size() + 16), expected_places;
      for (std::size_t j = 0; j < x.size(); ++j) {
        if (key_of(x[j]) < bound) continue;
        expected_keys.push_back(key_of(x[j]));
        expected_places.push_back(static_cast<std::int32_t>(j));
      }
      const std::int64_t count = simd().collect(x.data(), n, bound, keys.data(), places.data());
      ASSERT_EQ(count, static_cast<std::int64_t>(expected_keys.size())) << least << " of " << n;
      keys.resize(expected_keys.size());
      places.resize(expected_keys.size());
      EXPECT_EQ(keys, expected_keys) << least << " of " << n;
      EXPECT_EQ(places, expected_places) << least << " of " << n;
    }
  }
}

TEST_P(SimdLevel, CodesBecomeColumns) {
  constexpr std::int64_t kRows = 32, kWidth = 128, kStride = 48;
  std::vector<unsigned char> codes(kRows * kWidth);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<unsigned char>(i * 7 + i / 256);
  }
  const unsigned char* rows[kRows];
  for (std::int64_t j = 0; j < kRows; ++j) rows[j] = codes.data() + (kRows - 1 - j) * kWidth;
  std::vector<float> y(kWidth * kStride, 9.0f);
  simd().decode_e4m3_columns(rows, kRows, kWidth, y.data(), kStride);
  for (std::int64_t d = 0; d < kWidth; ++d) {
    for (std::int64_t j = 0; j < kStride; ++j) {
      const float value = y[static_cast<std::size_t>(d * kStride + j)];
      if (j >= kRows) {
        EXPECT_EQ(value, 9.0f);
        continue;
      }
      const float expected = cpu::e4m3_to_float(rows[j][d]);
      EXPECT_TRUE(std::isnan(expected) ? std::isnan(value) : value == expected)
          << int{rows[j][d]} << ": " << value;
    }
  }
}

TEST_P(SimdLevel, UpperHalvesAreTheNumbersOfBf16) {
  for (std::int64_t n : {1, 15, 16, 33, 512}) {
    std::vector<std::uint16_t> expected(static_cast<std::size_t>(n)), y(expected.size() + 1, 7);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] = static_cast<std::uint16_t>(i * 331);
    }
    std::vector<float> x(expected.size());
    simd().from_bf16(expected.data(), n, x.data());
    simd().upper_halves(x.data(), n, y.data());
    EXPECT_EQ(y.back(), 7);
    y.pop_back();
    EXPECT_EQ(y, expected);
  }
}

// Twice as fast, and of numbers that are large, small and of both signs as near to their sum.
TEST_P(SimdLevel, ProductsOfPairsHaveTheRangeOfBf16) {
  EXPECT_EQ(simd().pairs, std::string_view(simd().name) == "avx512_bf16");
  const std::vector<float> a = {3e38f, 1e-30f, -2.0f, kInf, 0.5f}, b = {1e-30f, 1e30f, 3.0f, 0.5f};
  std::vector<std::uint16_t> a16, b16;
  for (const float v : a) a16.push_back(cpu::float_to_bf16(v));
  for (const float v : b) b16.push_back(cpu::float_to_bf16(v));
  float y = 0;
  simd().gemm_bf16(a16.data(), 4, 1, b16.data(), 4, 1, 3, &y, 1);
  double sum = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    sum += double{cpu::bf16_to_float(a16[i])} * double{cpu::bf16_to_float(b16[i])};
  }
  EXPECT_NEAR(double{y}, sum, 1e-6 * std::fabs(sum));
  simd().gemm_bf16(a16.data(), 4, 1, b16.data(), 4, 1, 4, &y, 1);
  EXPECT_EQ(y, kInf);
}

INSTANTIATE_TEST_SUITE_P(Levels, SimdLevel, ::testing::Range(0, cpu::simd::runnable_levels().count),
                         [](const ::testing::TestParamInfo<int>& level) {
                           return cpu::simd::runnable_levels().items[level.param]->name;
                         });

}  // namespace simd_test
}  // namespace attnscope::kernel_tests
