// Reading matrices in slices of time, and their reduced pictures.
#include "app/views/matrix_scan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace attnscope {
namespace matrix_scan_test {

constexpr auto kNoDeadline = ScanClock::time_point::max();
constexpr auto kPast = ScanClock::time_point::min();
const double kNan = std::numeric_limits<double>::quiet_NaN();
const double kInf = std::numeric_limits<double>::infinity();

TEST(MatrixScan, CountsWhatIsThere) {
  const std::vector<double> cells = {1, -3, kNan, kInf, -kInf, 5, 0, 7};
  const CellValue value = [&](std::int64_t r, std::int64_t c) {
    return cells[static_cast<std::size_t>(4 * r + c)];
  };
  const CellAbsent absent = [](std::int64_t r, std::int64_t c) { return r == 1 && c == 3; };
  MatrixScan scan;
  scan.start(2, 4);
  ASSERT_TRUE(scan.advance(value, absent, kNoDeadline));
  EXPECT_EQ(scan.stats().min, -3);
  EXPECT_EQ(scan.stats().max, 5);
  EXPECT_EQ(scan.stats().finite, 4);
  EXPECT_TRUE(scan.stats().whole);
  EXPECT_EQ(scan.stats().nan, 1);
  EXPECT_EQ(scan.stats().positive_inf, 1);
  EXPECT_EQ(scan.stats().negative_inf, 1);
  EXPECT_EQ(scan.stats().absent, 1);
  std::int64_t counted = 0;
  for (const std::int64_t n : scan.histogram()) counted += n;
  EXPECT_EQ(counted, 4);
  EXPECT_EQ(scan.histogram().front(), 1);
  EXPECT_EQ(scan.histogram().back(), 1);
  EXPECT_TRUE(is_absent(scan.cell(value, absent, 1, 3)));
  EXPECT_FALSE(is_absent(scan.cell(value, absent, 0, 2)));
}

TEST(MatrixScan, ADeadlineSplitsTheWorkWithoutChangingIt) {
  const CellValue value = [](std::int64_t r, std::int64_t c) {
    return std::sin(static_cast<double>(r * 97 + c));
  };
  MatrixScan once, sliced;
  once.start(300, 200);
  once.advance(value, {}, kNoDeadline);
  sliced.start(300, 200);
  int slices = 1;
  double progress = 0;
  while (!sliced.advance(value, {}, kPast)) {
    ++slices;
    EXPECT_GE(sliced.progress(), progress);
    progress = sliced.progress();
  }
  EXPECT_GT(slices, 10);
  EXPECT_EQ(sliced.histogram(), once.histogram());
  EXPECT_EQ(sliced.stats().min, once.stats().min);
  EXPECT_EQ(sliced.progress(), 1);
  EXPECT_FALSE(sliced.stats().whole);
}

TEST(ReducedMatrix, EachTexelShowsTheHeaviestOfItsCells) {
  const CellValue value = [](std::int64_t r, std::int64_t c) {
    if (r == 5 && c == 6) return -100.0;
    if (r == 9 && c == 1) return kNan;
    if (r == 9 && c == 0) return kInf;
    return static_cast<double>(r % 2);
  };
  const CellAbsent absent = [](std::int64_t r, std::int64_t) { return r >= 10; };
  MatrixScan scan;
  scan.start(11, 9);
  scan.advance(value, absent, kNoDeadline);
  ReducedMatrix picture = reduced_matrix(11, 9, 0, 11, 0, 9, 2, 4);
  EXPECT_EQ(picture.width, 3);
  EXPECT_EQ(picture.height, 6);
  EXPECT_FALSE(advance(picture, scan, value, absent, kPast));
  EXPECT_TRUE(advance(picture, scan, value, absent, kNoDeadline));
  EXPECT_EQ(picture.texels[2 * 3 + 1], -100);
  EXPECT_TRUE(std::isnan(picture.texels[4 * 3]));
  EXPECT_FALSE(is_absent(picture.texels[4 * 3]));
  EXPECT_TRUE(is_absent(picture.texels[5 * 3]));
  const CellAt cell = shown_cell(picture, scan, value, absent, 4, 5);
  EXPECT_EQ(cell.row, 5);
  EXPECT_EQ(cell.column, 6);
}

TEST(ReducedMatrix, APartIsAlignedToItsSteps) {
  const ReducedMatrix picture = reduced_matrix(100, 100, 13, 30, 7, 200, 4, 2);
  EXPECT_EQ(picture.first_row, 12);
  EXPECT_EQ(picture.rows, 18);
  EXPECT_EQ(picture.first_column, 6);
  EXPECT_EQ(picture.columns, 94);
  EXPECT_EQ(picture.height, 5);
}

}  // namespace matrix_scan_test
}  // namespace attnscope
