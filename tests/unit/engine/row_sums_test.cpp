// Sums over rows: the same bits from registers of every width, and what the formulas say.
#include "engine/trace/row_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace attnscope {
namespace row_sums_test {

struct Row {
  std::vector<double> a, b;
};

double bf16(double v) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(v)) & 0xffff0000u;
  return std::bit_cast<float>(bits);
}

// a in the dtype; every third number is what b rounds to.
Row random_row(std::int32_t dtype, std::int64_t count, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  std::uniform_int_distribution<int> exponent(-40, 40);
  Row row;
  for (std::int64_t c = 0; c < count; ++c) {
    const double v = c % 7 == 6 ? 0 : std::ldexp(normal(random), exponent(random));
    const double moved = c % 3 == 0 ? v : v * (1 + normal(random) * 1e-2);
    row.b.push_back(dtype == AS_F64 ? v : static_cast<float>(v));
    row.a.push_back(dtype == AS_BF16  ? bf16(moved)
                    : dtype == AS_F32 ? static_cast<float>(moved)
                                      : moved);
  }
  return row;
}

struct Result {
  RowSums sums;
  std::vector<double> differences, rounded;
};

Result sums_of(std::int32_t dtype, const Row& row, double known, RowWidth width) {
  Result out;
  out.differences.resize(row.a.size());
  out.rounded.resize(row.a.size());
  out.sums = row_sums(dtype, row.a.data(), row.b.data(), static_cast<std::int64_t>(row.a.size()),
                      known, {out.differences.data(), out.rounded.data()}, width);
  return out;
}

bool same(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

TEST(RowSums, AllWidthsGiveTheSameBits) {
  std::mt19937_64 random(7);
  for (const std::int32_t dtype : {AS_BF16, AS_F32, AS_F64}) {
    for (const std::int64_t count : {1, 7, 8, 9, 64, 127, 512}) {
      const Row row = random_row(dtype, count, random);
      const Result narrow = sums_of(dtype, row, 1e-3, RowWidth::k128);
      DifferenceBins bins;
      bins.count(narrow.differences.data(), count, RowWidth::k128);
      for (const RowWidth width : row_widths()) {
        SCOPED_TRACE(testing::Message() << dtype << ", " << count << " numbers, "
                                        << static_cast<int>(width) << " bits");
        const Result wide = sums_of(dtype, row, 1e-3, width);
        EXPECT_TRUE(same(wide.sums.ab, narrow.sums.ab));
        EXPECT_TRUE(same(wide.sums.squares, narrow.sums.squares));
        EXPECT_TRUE(same(wide.sums.max_abs, narrow.sums.max_abs));
        EXPECT_TRUE(same(wide.sums.max_rel, narrow.sums.max_rel));
        EXPECT_EQ(wide.sums.equal, narrow.sums.equal);
        EXPECT_EQ(wide.sums.unlike, narrow.sums.unlike);
        EXPECT_EQ(wide.sums.max_ulp, narrow.sums.max_ulp);
        EXPECT_TRUE(std::ranges::equal(wide.differences, narrow.differences, same));
        EXPECT_TRUE(std::ranges::equal(wide.rounded, narrow.rounded, same));
        EXPECT_TRUE(same(sum_of_squares(row.a.data(), count, width),
                         sum_of_squares(row.a.data(), count, RowWidth::k128)));
        DifferenceBins same_bins;
        same_bins.count(wide.differences.data(), count, width);
        for (int bin = 0; bin < DifferenceBins::kBins; ++bin) {
          ASSERT_EQ(same_bins.of(bin), bins.of(bin)) << bin;
        }
      }
    }
  }
}

TEST(RowSums, AreWhatTheFormulasSay) {
  std::mt19937_64 random(8);
  for (const std::int32_t dtype : {AS_BF16, AS_F32, AS_F64}) {
    const Row row = random_row(dtype, 77, random);
    const Result result = sums_of(dtype, row, 0, widest());
    double ab = 0, squares = 0, max_abs = 0, max_rel = 0;
    std::int64_t equal = 0, unlike = 0;
    for (std::size_t c = 0; c < row.a.size(); ++c) {
      const double x = row.a[c], y = row.b[c], difference = std::fabs(x - y);
      ab += x * y;
      squares += x * x + y * y;
      max_abs = std::max(max_abs, difference);
      max_rel = std::max(max_rel, difference / (std::fabs(y) + 1e-6));
      equal += x == y ? 1 : 0;
      unlike += x != result.rounded[c] ? 1 : 0;
      EXPECT_TRUE(same(result.differences[c], difference));
      if (dtype == AS_F32) {
        EXPECT_TRUE(same(result.rounded[c], static_cast<float>(y)));
      }
      if (dtype == AS_F64) {
        EXPECT_TRUE(same(result.rounded[c], y));
      }
      if (dtype == AS_BF16) {
        EXPECT_LE(std::fabs(result.rounded[c] - y), std::fabs(y) * 0x1p-8);
        EXPECT_TRUE(same(result.rounded[c], bf16(result.rounded[c])));
      }
    }
    EXPECT_NEAR(result.sums.ab, ab, 1e-12 * squares);
    EXPECT_NEAR(result.sums.squares, squares, 1e-12 * squares);
    EXPECT_TRUE(same(result.sums.max_abs, max_abs));
    EXPECT_TRUE(same(result.sums.max_rel, max_rel));
    EXPECT_EQ(result.sums.equal, equal);
    EXPECT_EQ(result.sums.unlike, unlike);
    EXPECT_EQ(result.sums.max_ulp > 0, dtype != AS_F64);
  }
}

TEST(RowSums, SayWhereNumbersAreTooSmallToRoundLikeThis) {
  Row row{{0x1p-130, 1, 2}, {0x1p-131, 1, 2}};
  EXPECT_TRUE(sums_of(AS_BF16, row, 0, widest()).sums.tiny);
  row.b[0] = row.a[0];
  EXPECT_FALSE(sums_of(AS_F32, row, 0, widest()).sums.tiny);
}

TEST(RowSums, LoadsWhatTheBitsSay) {
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  std::vector<double> out(halves.size());
  for (const RowWidth width : row_widths()) {
    for (const std::int64_t count : {65536, 65533}) {
      std::ranges::fill(out, 0.5);
      load_doubles(AS_BF16, halves.data(), count, out.data(), width);
      for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        const double wanted = std::bit_cast<float>(static_cast<std::uint32_t>(i) << 16);
        ASSERT_TRUE(same(out[i], wanted) || (std::isnan(out[i]) && std::isnan(wanted))) << i;
      }
      for (auto i = static_cast<std::size_t>(count); i < out.size(); ++i) ASSERT_EQ(out[i], 0.5);
    }
  }
}

}  // namespace row_sums_test
}  // namespace attnscope
