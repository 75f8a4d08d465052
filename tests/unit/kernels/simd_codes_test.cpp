// Products over rows of codes, of every SIMD level that this machine runs: against float64 over
// what the scalar codec says of each code, and the same bytes for a row alone as among others.
#include <limits>

#include "kernels/cpu/simd/simd.h"
#include "tests/unit/kernels/support.h"

namespace attnscope::kernel_tests {
namespace simd_codes_test {

using cpu::simd::CodeKernels;
using cpu::simd::CodeRows;

constexpr std::int64_t kMostSize = 160;

std::size_t place(std::int64_t i) { return static_cast<std::size_t>(i); }

// One of three kinds, by number.
const CodeKernels& products(const cpu::simd::Kernels& simd, int kind) {
  return kind == 0 ? simd.e4m3 : kind == 1 ? simd.e5m2 : simd.i8;
}
double value_of(int kind, unsigned char code) {
  if (kind == 0) return static_cast<double>(cpu::e4m3_to_float(code));
  if (kind == 1) {
    return static_cast<double>(cpu::f16_to_float(static_cast<std::uint16_t>(code << 8)));
  }
  return static_cast<double>(static_cast<signed char>(code));
}

// Rows of codes that stand for finite numbers.
struct Rows {
  Rows(int kind, std::int64_t count, std::int64_t size, Random& random) {
    for (std::int64_t j = 0; j < count; ++j) {
      std::vector<unsigned char>& row = bytes.emplace_back(place(size));
      for (unsigned char& code : row) {
        do {
          code = static_cast<unsigned char>(random() >> 40);
        } while (kind < 2 && (code & 0x7f) >= (kind == 0 ? 0x7f : 0x7c));
      }
      codes.push_back(row.data());
      scale.push_back(std::ldexp(1.0f + 0.1f * normal(random), static_cast<int>(j % 5) - 2));
      zero.push_back(kind == 2 ? static_cast<float>(j % 256 - 128) : 0.0f);
    }
  }
  CodeRows from(std::int64_t j) const {
    return {codes.data() + j, scale.data() + j, zero.data() + j};
  }
  double at(int kind, std::int64_t j, std::int64_t k) const {
    const double raw = value_of(kind, bytes[place(j)][place(k)]);
    return (raw - static_cast<double>(zero[place(j)])) * static_cast<double>(scale[place(j)]);
  }
  std::vector<std::vector<unsigned char>> bytes;
  std::vector<const unsigned char*> codes;
  std::vector<float> scale, zero;
};

class SimdCodes : public ::testing::TestWithParam<int> {
 protected:
  const cpu::simd::Kernels& simd() const { return *cpu::simd::runnable_levels().items[GetParam()]; }
  std::vector<float> normals(std::int64_t n) {
    std::vector<float> x(place(n));
    for (float& v : x) v = normal(random_);
    return x;
  }
  Random random_{77};
};

TEST_P(SimdCodes, DotsOverShapes) {
  const std::int64_t shapes[][3] = {{1, 1, 4},  {1, 9, 64},   {4, 64, 128},      {5, 7, 36},
                                    {8, 6, 20}, {3, 13, 100}, {15, 3, kMostSize}};
  for (int kind = 0; kind < 3; ++kind) {
    for (const auto& [m, n, size] : shapes) {
      const Rows rows(kind, n, size, random_);
      const std::vector<float> x = normals(m * size);
      std::vector<float> y(place(m * n));
      products(simd(), kind).dot(x.data(), size, m, rows.from(0), n, size, y.data(), n);
      for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t j = 0; j < n; ++j) {
          double sum = 0, magnitude = 0;
          for (std::int64_t k = 0; k < size; ++k) {
            const double term = static_cast<double>(x[place(i * size + k)]) * rows.at(kind, j, k);
            sum += term;
            magnitude += std::fabs(term);
          }
          ASSERT_NEAR(static_cast<double>(y[place(i * n + j)]), sum, 1e-6 * magnitude)
              << kind << " " << m << " " << n << " " << size;
        }
      }
    }
  }
}

TEST_P(SimdCodes, AddsWeightedRows) {
  for (int kind = 0; kind < 3; ++kind) {
    for (std::int64_t m : {1, 2, 4, 7}) {
      for (std::int64_t size : {4, 16, 36, 64, 100, 128, 160}) {
        const std::int64_t n = 37, wide = size + 3;
        const Rows rows(kind, n, size, random_);
        std::vector<float> a = normals(m * n);
        const std::vector<float> weights = a;
        std::vector<float> c(place(m * wide), 2.0f);
        products(simd(), kind).add(a.data(), n, m, rows.from(0), n, c.data(), wide, size);
        for (std::int64_t i = 0; i < m; ++i) {
          for (std::int64_t k = 0; k < wide; ++k) {
            double sum = 2, magnitude = 2;
            for (std::int64_t j = 0; k < size && j < n; ++j) {
              const double term =
                  static_cast<double>(weights[place(i * n + j)]) * rows.at(kind, j, k);
              sum += term;
              magnitude += std::fabs(term);
            }
            // Behind the row's numbers nothing is written.
            ASSERT_NEAR(static_cast<double>(c[place(i * wide + k)]), sum,
                        k < size ? 1e-6 * magnitude : 0.0)
                << kind << " " << m << " " << size << " " << k;
          }
        }
      }
    }
  }
}

// Every code of the formats with NaN and infinities, as 1 times a number.
TEST_P(SimdCodes, EveryCodeIsWhatItStandsFor) {
  const float one = 1.0f, none = 0.0f;
  for (int kind = 0; kind < 3; ++kind) {
    for (int code = 0; code < 256; ++code) {
      const unsigned char bytes[4] = {static_cast<unsigned char>(code), 0, 0, 0};
      const unsigned char* row = bytes;
      const float x[4] = {1.0f, 0.0f, 0.0f, 0.0f};
      float y = 0, weight = 1, c[4] = {};
      products(simd(), kind).dot(x, 4, 1, {&row, &one, &none}, 1, 4, &y, 1);
      products(simd(), kind).add(&weight, 1, 1, {&row, &one, &none}, 1, c, 4, 4);
      const auto expected = static_cast<float>(value_of(kind, bytes[0]));
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(y) && std::isnan(c[0])) << kind << " " << code;
      } else {
        EXPECT_EQ(y, expected) << kind << " " << code;
        EXPECT_EQ(c[0], expected) << kind << " " << code;
      }
      EXPECT_EQ(c[1], 0.0f) << kind << " " << code;
    }
  }
}

TEST_P(SimdCodes, ARowGivesTheSameBytesAlone) {
  const std::int64_t m = 7, n = 11, size = 100;
  for (int kind = 0; kind < 3; ++kind) {
    const Rows rows(kind, n, size, random_);
    const std::vector<float> x = normals(m * size), weights = normals(m * n);
    std::vector<float> y(place(m * n)), a = weights, c(place(m * size));
    products(simd(), kind).dot(x.data(), size, m, rows.from(0), n, size, y.data(), n);
    products(simd(), kind).add(a.data(), n, m, rows.from(0), n, c.data(), size, size);
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        float alone = 0;
        products(simd(), kind).dot(x.data() + i * size, size, 1, rows.from(j), 1, size, &alone, 1);
        ASSERT_EQ(alone, y[place(i * n + j)]) << kind << " " << i << " " << j;
      }
      std::vector<float> one(weights.begin() + i * n, weights.begin() + (i + 1) * n);
      std::vector<float> sums(place(size));
      products(simd(), kind).add(one.data(), n, 1, rows.from(0), n, sums.data(), size, size);
      for (std::int64_t k = 0; k < size; ++k) {
        ASSERT_EQ(sums[place(k)], c[place(i * size + k)]) << kind << " " << i << " " << k;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SimdCodes, ::testing::Range(0, cpu::simd::runnable_levels().count),
                         [](const auto& level) {
                           return cpu::simd::runnable_levels().items[level.param]->name;
                         });

}  // namespace simd_codes_test
}  // namespace attnscope::kernel_tests
