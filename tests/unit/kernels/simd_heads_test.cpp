// What every SIMD level does to heads of queries and of outputs, against scalar float arithmetic,
// bit for bit: odd widths, strides and places, numbers that are none.
#include <algorithm>
#include <array>
#include <limits>

#include "kernels/cpu/simd/simd.h"
#include "tests/unit/kernels/support.h"

namespace attnscope::kernel_tests {
namespace simd_heads_test {

using Bits = std::uint16_t;
using cpu::simd::Kernels;
using cpu::simd::Turn;

constexpr float kInf = std::numeric_limits<float>::infinity();

class SimdHeads : public ::testing::TestWithParam<int> {
 protected:
  const Kernels& simd() const { return *cpu::simd::runnable_levels().items[GetParam()]; }
  Random random_{71};

  // Numbers of every size; `special`: NaN, infinities and subnormals among them.
  std::vector<Bits> numbers(std::size_t count, bool special) {
    std::vector<Bits> made(count);
    for (Bits& bits : made) {
      bits = cpu::float_to_bf16(normal(random_));
      if (special && random_() % 4 == 0) bits = static_cast<Bits>(random_());
    }
    return made;
  }
  std::array<float, 64> table_row() {
    std::array<float, 64> row{};
    for (std::size_t i = 0; i < 32; ++i) {
      const float angle = 7.0f * normal(random_);
      row[i] = std::cos(angle);
      row[32 + i] = std::sin(angle);
    }
    return row;
  }
};

bool is_nan(Bits bits) { return (bits & 0x7fff) > 0x7f80; }
bool same(Bits a, Bits b) { return a == b || (is_nan(a) && is_nan(b)); }

// One head by scalar arithmetic.
std::vector<Bits> turned(const Turn& t, std::int64_t row) {
  const Bits* x = t.x + row * t.x_stride;
  std::vector<Bits> y(x, x + t.width);
  const auto plain = static_cast<std::size_t>(t.width - 64);
  const auto scaled = [&](std::size_t i) {
    const float value = cpu::bf16_to_float(x[i]);
    if (t.factors == nullptr) return value;
    const float product = value * t.factors[row];
    return t.rounded ? cpu::round_bf16(product) : product;
  };
  for (std::size_t i = 0; t.factors != nullptr && i < plain; ++i) {
    y[i] = cpu::float_to_bf16(scaled(i));
  }
  for (std::size_t i = 0; i < 32; ++i) {
    const float even = scaled(plain + 2 * i), odd = scaled(plain + 2 * i + 1);
    const float c = t.table[i], s = t.sign * t.table[32 + i];
    const float first = even * c, second = odd * s, third = even * s, fourth = odd * c;
    y[plain + 2 * i] = cpu::float_to_bf16(first - second);
    y[plain + 2 * i + 1] = cpu::float_to_bf16(third + fourth);
  }
  return y;
}

TEST_P(SimdHeads, TurnLikeScalarArithmetic) {
  enum Mode { kPlain, kFinite, kAny, kRounded, kFiniteRounded };
  const std::array<float, 64> table = table_row();
  for (const std::int64_t width : {64, 65, 80, 95, 127, 128, 192, 511, 512, 576}) {
    for (const std::int64_t pad : {0, 1, 32}) {
      for (const Mode mode : {kPlain, kFinite, kAny, kRounded, kFiniteRounded}) {
        const std::int64_t rows = 1 + width % 5, stride = width + pad;
        const std::vector<Bits> x = numbers(static_cast<std::size_t>(rows * stride),
                                            mode != kFinite && mode != kFiniteRounded);
        // On a multiple of every vector, or a number behind it.
        std::vector<Bits> room(x.size() + 128, 0x5555);
        const auto off = (64 - reinterpret_cast<std::uintptr_t>(room.data()) % 64) / 2 + pad % 2;
        std::vector<float> factors;
        for (std::int64_t r = 0; r < rows; ++r) factors.push_back(std::ldexp(1.7f, 5 - 3 * int(r)));
        Turn t;
        t.x = x.data();
        t.x_stride = t.y_stride = stride;
        t.rows = rows;
        t.width = width;
        t.table = table.data();
        t.sign = mode == kPlain ? -1.0f : 1.0f;
        t.factors = mode == kPlain ? nullptr : factors.data();
        t.finite = mode == kFinite || mode == kFiniteRounded;
        t.rounded = mode == kRounded || mode == kFiniteRounded;
        for (const bool stream : {false, true}) {
          std::fill(room.begin(), room.end(), Bits{0x5555});
          t.y = room.data() + off;
          t.stream = stream;
          simd().turn_heads(t);
          simd().end_stream();
          for (std::int64_t r = 0; r < rows; ++r) {
            const std::vector<Bits> expected = turned(t, r);
            for (std::int64_t i = 0; i < width; ++i) {
              const Bits got = t.y[r * stride + i];
              const Bits wanted = expected[static_cast<std::size_t>(i)];
              // Others than the last 64 are copied where there is no factor: NaN keep their bits.
              const bool copied = mode == kPlain && i < width - 64;
              ASSERT_TRUE(copied ? got == wanted : same(got, wanted))
                  << width << " + " << pad << ", mode " << mode << ", row " << r << ", " << i
                  << ": " << got << ", not " << wanted;
            }
            for (std::int64_t i = width; i < stride; ++i) {
              ASSERT_EQ(t.y[r * stride + i], 0x5555) << "behind a row";
            }
          }
          ASSERT_EQ(t.y[-1], 0x5555);
          ASSERT_EQ(t.y[rows * stride], 0x5555);
        }
        std::vector<Bits> in_place = x;  // the same where y is x
        Turn same_memory = t;
        same_memory.x = same_memory.y = in_place.data();
        simd().turn_heads(same_memory);
        for (std::int64_t r = 0; r < rows; ++r) {
          const Bits* row = in_place.data() + r * stride;
          ASSERT_TRUE(std::equal(row, row + width, t.y + r * stride));
        }
      }
    }
  }
}

TEST_P(SimdHeads, SumsOfSquaresAreThoseOfARowAlone) {
  for (const std::int64_t n : {1, 7, 16, 31, 33, 64, 100, 128, 512, 1000}) {
    const std::int64_t stride = n + 3, rows = 7;
    const std::vector<Bits> x = numbers(static_cast<std::size_t>(rows * stride), false);
    std::vector<float> sums(rows + 1, -1.0f);
    simd().sum_squares_rows(x.data(), stride, rows, n, sums.data());
    EXPECT_EQ(sums.back(), -1.0f);
    for (std::int64_t r = 0; r < rows; ++r) {
      double exact = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        const double v = cpu::bf16_to_float(x[static_cast<std::size_t>(r * stride + i)]);
        exact += v * v;
      }
      const float sum = sums[static_cast<std::size_t>(r)];
      EXPECT_NEAR(double{sum}, exact, 1e-6 * exact) << n;
      float alone = 0;
      simd().sum_squares_rows(x.data() + r * stride, stride, 1, n, &alone);
      EXPECT_EQ(alone, sum) << n << ", row " << r;
    }
  }
}

TEST_P(SimdHeads, SumsOfSquaresKeepWhatIsNoNumber) {
  const float special[] = {kInf, -kInf, std::numeric_limits<float>::quiet_NaN(), 3e30f, 1e-40f};
  for (const float value : special) {
    for (const std::size_t place : {0, 13, 63, 98}) {
      std::vector<Bits> x(99, 0);
      x[place] = cpu::float_to_bf16(value);
      float sum = -1;
      simd().sum_squares_rows(x.data(), 99, 1, 99, &sum);
      const float rounded = cpu::round_bf16(value), expected = rounded * rounded;
      EXPECT_TRUE(sum == expected || (std::isnan(sum) && std::isnan(expected))) << value;
    }
  }
}

// In float64 and in one order: to the last bit what the lowest level makes of them.
TEST_P(SimdHeads, SumsInFloat64AreThoseOfEveryLevel) {
  const Kernels& lowest = *cpu::simd::runnable_levels().items[0];
  for (const std::int64_t n : {1, 31, 32, 64, 77, 512, 1000}) {
    for (const bool rounded : {false, true}) {
      std::vector<Bits> x = numbers(static_cast<std::size_t>(n), false);
      for (Bits& bits : x) bits = static_cast<Bits>(bits + (random_() % 40 << 7));
      const double sum = simd().sum_bf16_squares(x.data(), n, rounded);
      EXPECT_EQ(sum, lowest.sum_bf16_squares(x.data(), n, rounded)) << n;
      double exact = 0;
      for (const Bits bits : x) {
        const float v = cpu::bf16_to_float(bits), square = v * v;
        exact += double{rounded ? cpu::round_bf16(square) : square};
      }
      EXPECT_NEAR(sum, exact, 1e-14 * exact) << n;
      for (const Bits special : {0x7f80, 0xff80, 0x7fc0, 0x7fff, 0xffff, 0x7f81}) {
        std::vector<Bits> y = x;
        y[static_cast<std::size_t>(n / 2)] = special;
        const double kept = simd().sum_bf16_squares(y.data(), n, rounded);
        EXPECT_TRUE(is_nan(special) ? std::isnan(kept) : std::isinf(kept)) << special;
      }
    }
  }
}

TEST_P(SimdHeads, BlocksAreQuantisedLikeTheScalarCodec) {
  for (const std::int64_t block : {64, 128}) {
    for (const std::int32_t floor : {AS_SCALE_FLOOR_1E4, AS_SCALE_FLOOR_1E8, AS_SCALE_FLOOR_1E10}) {
      for (int round = 0; round < 300; ++round) {
        std::vector<Bits> x(static_cast<std::size_t>(4 * block));
        for (std::size_t i = 0; i < x.size(); ++i) {
          const std::size_t of_block = i / static_cast<std::size_t>(block);
          const auto exponent = (static_cast<std::size_t>(round) * 7 + 40 * of_block) % 256;
          const auto bits = static_cast<Bits>(random_());
          // Of a few exponents, or any bits.
          x[i] = round % 3 == 0
                     ? bits
                     : static_cast<Bits>(
                           (bits & 0x807f) |
                           (std::min<std::size_t>(exponent + (bits >> 7) % 12, 255) << 7));
        }
        // Ends of what a scale reaches: 448 times a power of two and its neighbours.
        if (round % 5 == 0) {
          for (const Bits near : {0x43df, 0x43e0, 0x43e1}) {
            std::fill_n(x.begin(), block, Bits{0x3f80});
            x[static_cast<std::size_t>(round % block)] = near;
          }
        }
        std::vector<unsigned char> codes(x.size() + 1, 0xa5);
        std::vector<std::int32_t> exponents(5, -7777);
        simd().quantise_blocks(x.data(), 4 * block, block, cpu::fp8_floor(floor), codes.data(),
                               exponents.data());
        EXPECT_EQ(codes.back(), 0xa5);
        EXPECT_EQ(exponents.back(), -7777);
        for (std::int64_t b = 0; b < 4; ++b) {
          std::vector<float> values(static_cast<std::size_t>(block));
          for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] = cpu::bf16_to_float(x[static_cast<std::size_t>(b * block) + i]);
          }
          const int n = static_cast<int>(block);
          const int exponent = cpu::fp8_exponent(cpu::abs_max(values.data(), n), floor);
          ASSERT_EQ(exponents[static_cast<std::size_t>(b)], exponent);
          std::vector<unsigned char> expected(values.size());
          cpu::encode_e4m3(values.data(), n, exponent, expected.data());
          for (std::size_t i = 0; i < expected.size(); ++i) {
            ASSERT_EQ(codes[static_cast<std::size_t>(b * block) + i], expected[i])
                << values[i] << " at 2^" << exponent;
          }
        }
      }
    }
  }
}

// Every finite bf16 under every scale that it may have: among 448 times the scale.
TEST_P(SimdHeads, EveryNumberUnderEveryScale) {
  for (int exponent = -120; exponent <= 118; exponent += 7) {
    const Bits largest = cpu::float_to_bf16(std::ldexp(448.0f, exponent));
    std::vector<Bits> x;
    std::vector<float> values;
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      if ((bits & 0x7fff) > largest) continue;
      if (x.size() % 64 == 0) x.push_back(largest);
      x.push_back(static_cast<Bits>(bits));
    }
    while (x.size() % 64 != 0) x.push_back(largest);
    for (const Bits bits : x) values.push_back(cpu::bf16_to_float(bits));
    std::vector<unsigned char> codes(x.size()), expected(x.size());
    std::vector<std::int32_t> exponents(x.size() / 64);
    simd().quantise_blocks(x.data(), static_cast<std::int64_t>(x.size()), 64, 0x1p-126f,
                           codes.data(), exponents.data());
    for (const std::int32_t e : exponents) ASSERT_EQ(e, exponent);
    cpu::encode_e4m3(values.data(), static_cast<int>(x.size()), exponent, expected.data());
    ASSERT_EQ(codes, expected) << exponent;
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, SimdHeads, ::testing::Range(0, cpu::simd::runnable_levels().count),
                         [](const ::testing::TestParamInfo<int>& level) {
                           return cpu::simd::runnable_levels().items[level.param]->name;
                         });

}  // namespace simd_heads_test
}  // namespace attnscope::kernel_tests
