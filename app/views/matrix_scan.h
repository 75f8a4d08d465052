// Reading a matrix for a picture of it: statistics, histogram and a reduced copy, in slices of time
// so that no frame waits for a large one.
//
//   scan.start(rows, columns);
//   while (!scan.advance(value, absent, deadline)) ..   // once a frame
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

namespace attnscope {

using ScanClock = std::chrono::steady_clock;
using CellValue = std::function<double(std::int64_t row, std::int64_t column)>;
using CellAbsent = std::function<bool(std::int64_t row, std::int64_t column)>;

// A cell that holds no value is a NaN with bits of its own.
float absent_cell();
bool is_absent(float cell);

struct MatrixStats {
  double min = 0, max = 0;  // of the finite values
  bool whole = true;        // all of them are integers
  std::int64_t finite = 0, nan = 0, positive_inf = 0, negative_inf = 0, absent = 0;
};

class MatrixScan {
 public:
  static constexpr int kBins = 96;
  static constexpr std::int64_t kMaxKept = std::int64_t{8} << 20;  // cells kept as floats

  void start(std::int64_t rows, std::int64_t columns);
  // Reads on until done (true) or the deadline.
  bool advance(const CellValue& value, const CellAbsent& absent, ScanClock::time_point deadline);
  bool done() const { return stage_ == Stage::kDone; }
  double progress() const;  // 0..1

  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  // Of what was read so far.
  const MatrixStats& stats() const { return stats_; }
  // Counts of the finite values in kBins equal bins over [min, max]; of a sample when the matrix is
  // larger than kMaxKept.
  const std::vector<std::int64_t>& histogram() const { return histogram_; }
  // One cell; from the kept copy where there is one.
  float cell(const CellValue& value, const CellAbsent& absent, std::int64_t row,
             std::int64_t column) const;

 private:
  enum class Stage { kIdle, kRead, kCount, kDone };
  bool kept() const { return !cells_.empty(); }
  void note(float cell);
  void count(float cell);

  std::int64_t rows_ = 0, columns_ = 0, next_ = 0;
  Stage stage_ = Stage::kIdle;
  std::vector<float> cells_;
  MatrixStats stats_;
  std::vector<std::int64_t> histogram_;
};

// A part of the matrix with `row_step` x `column_step` cells in each texel. A texel shows NaN
// before infinity before the largest magnitude; it is absent when all its cells are.
struct ReducedMatrix {
  std::int64_t first_row = 0, first_column = 0, rows = 0, columns = 0;  // the part, in cells
  std::int64_t row_step = 1, column_step = 1;
  int width = 0, height = 0;  // texels
  std::vector<float> texels;  // row by row
  int made = 0;               // rows of texels that are done
  bool done() const { return made == height; }
};

// The picture of a part before any texel is made: cut at the matrix and aligned to the steps.
ReducedMatrix reduced_matrix(std::int64_t rows, std::int64_t columns, std::int64_t first_row,
                             std::int64_t end_row, std::int64_t first_column,
                             std::int64_t end_column, std::int64_t row_step,
                             std::int64_t column_step);
// Makes rows of texels until done (true) or the deadline; at least one.
bool advance(ReducedMatrix& picture, const MatrixScan& scan, const CellValue& value,
             const CellAbsent& absent, ScanClock::time_point deadline);
// The cell of a texel that its colour shows.
struct CellAt {
  std::int64_t row = -1, column = -1;
};
CellAt shown_cell(const ReducedMatrix& picture, const MatrixScan& scan, const CellValue& value,
                  const CellAbsent& absent, std::int64_t row, std::int64_t column);

}  // namespace attnscope
