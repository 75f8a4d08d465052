#include "app/views/matrix_scan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace attnscope {
namespace {

constexpr std::uint32_t kAbsentBits = 0x7fc0a55eu;
constexpr std::int64_t kSlice = 2048;      // cells between two looks at the clock
constexpr std::int64_t kSample = 1 << 18;  // cells a histogram of an unkept matrix looks at

float to_float(double value) {
  if (std::isnan(value)) return std::numeric_limits<float>::quiet_NaN();
  if (std::isinf(value)) return static_cast<float>(value);
  constexpr double kMax = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(value, -kMax, kMax));
}

// What a texel shows of two cells: absent < finite by magnitude < infinite < NaN.
double weight(float cell) {
  if (is_absent(cell)) return -1;
  if (std::isnan(cell)) return std::numeric_limits<double>::infinity();
  if (std::isinf(cell)) return std::numeric_limits<double>::max();
  return std::fabs(cell);
}

}  // namespace

float absent_cell() { return std::bit_cast<float>(kAbsentBits); }
bool is_absent(float cell) { return std::bit_cast<std::uint32_t>(cell) == kAbsentBits; }

void MatrixScan::start(std::int64_t rows, std::int64_t columns) {
  rows_ = std::max<std::int64_t>(rows, 0);
  columns_ = std::max<std::int64_t>(columns, 0);
  next_ = 0;
  stage_ = Stage::kRead;
  stats_ = {};
  histogram_.assign(kBins, 0);
  const std::int64_t total = rows_ * columns_;
  cells_.assign(total <= kMaxKept ? static_cast<std::size_t>(total) : 0, 0.0f);
}

float MatrixScan::cell(const CellValue& value, const CellAbsent& absent, std::int64_t row,
                       std::int64_t column) const {
  const std::int64_t index = row * columns_ + column;
  if (kept() && (stage_ != Stage::kRead || index < next_)) {
    return cells_[static_cast<std::size_t>(index)];
  }
  if (absent && absent(row, column)) return absent_cell();
  return to_float(value(row, column));
}

void MatrixScan::note(float cell) {
  if (is_absent(cell)) {
    ++stats_.absent;
  } else if (std::isnan(cell)) {
    ++stats_.nan;
  } else if (std::isinf(cell)) {
    ++(cell > 0 ? stats_.positive_inf : stats_.negative_inf);
  } else {
    const bool first = stats_.finite++ == 0;
    stats_.min = first ? cell : std::min<double>(stats_.min, cell);
    stats_.max = first ? cell : std::max<double>(stats_.max, cell);
    stats_.whole = stats_.whole && cell == std::trunc(cell);
  }
}

void MatrixScan::count(float cell) {
  if (!std::isfinite(cell)) return;
  const double span = stats_.max - stats_.min;
  const double unit = span > 0 ? (cell - stats_.min) / span : 0.5;
  ++histogram_[static_cast<std::size_t>(std::clamp(static_cast<int>(unit * kBins), 0, kBins - 1))];
}

bool MatrixScan::advance(const CellValue& value, const CellAbsent& absent,
                         ScanClock::time_point deadline) {
  const std::int64_t total = rows_ * columns_;
  while (stage_ == Stage::kRead) {
    const std::int64_t end = std::min(total, next_ + kSlice);
    for (; next_ < end; ++next_) {
      const std::int64_t row = next_ / columns_, column = next_ % columns_;
      const float cell =
          absent && absent(row, column) ? absent_cell() : to_float(value(row, column));
      if (kept()) cells_[static_cast<std::size_t>(next_)] = cell;
      note(cell);
    }
    if (next_ == total) {
      stage_ = Stage::kCount;
      next_ = 0;
    } else if (ScanClock::now() >= deadline) {
      return false;
    }
  }
  const std::int64_t stride = kept() || total == 0 ? 1 : std::max<std::int64_t>(1, total / kSample);
  while (stage_ == Stage::kCount) {
    const std::int64_t end = std::min(total, next_ + kSlice * stride);
    for (; next_ < end; next_ += stride) {
      count(cell(value, absent, next_ / columns_, next_ % columns_));
    }
    if (next_ >= total) {
      stage_ = Stage::kDone;
    } else if (ScanClock::now() >= deadline) {
      return false;
    }
  }
  return done();
}

double MatrixScan::progress() const {
  const double total = static_cast<double>(rows_ * columns_);
  if (stage_ == Stage::kDone || total == 0) return 1;
  const double part = static_cast<double>(next_) / total;
  return stage_ == Stage::kRead ? 0.9 * part : 0.9 + 0.1 * part;
}

ReducedMatrix reduced_matrix(std::int64_t rows, std::int64_t columns, std::int64_t first_row,
                             std::int64_t end_row, std::int64_t first_column,
                             std::int64_t end_column, std::int64_t row_step,
                             std::int64_t column_step) {
  ReducedMatrix picture;
  picture.row_step = row_step;
  picture.column_step = column_step;
  picture.first_row = std::clamp<std::int64_t>(first_row / row_step * row_step, 0, rows);
  picture.first_column =
      std::clamp<std::int64_t>(first_column / column_step * column_step, 0, columns);
  picture.rows = std::clamp<std::int64_t>(end_row, picture.first_row, rows) - picture.first_row;
  picture.columns =
      std::clamp<std::int64_t>(end_column, picture.first_column, columns) - picture.first_column;
  picture.height = static_cast<int>((picture.rows + row_step - 1) / row_step);
  picture.width = static_cast<int>((picture.columns + column_step - 1) / column_step);
  return picture;
}

bool advance(ReducedMatrix& picture, const MatrixScan& scan, const CellValue& value,
             const CellAbsent& absent, ScanClock::time_point deadline) {
  if (picture.made == 0) {
    const auto width = static_cast<std::size_t>(picture.width);
    picture.texels.assign(width * static_cast<std::size_t>(picture.height), absent_cell());
  }
  while (!picture.done()) {
    float* texels =
        picture.texels.data() + static_cast<std::ptrdiff_t>(picture.made) * picture.width;
    const std::int64_t top = picture.first_row + picture.made * picture.row_step;
    const std::int64_t bottom = std::min(top + picture.row_step, picture.first_row + picture.rows);
    for (std::int64_t row = top; row < bottom; ++row) {
      std::int64_t column = picture.first_column;
      for (int x = 0; x < picture.width; ++x) {
        const std::int64_t end =
            std::min(column + picture.column_step, picture.first_column + picture.columns);
        for (; column < end; ++column) {
          const float cell = scan.cell(value, absent, row, column);
          if (weight(cell) > weight(texels[x])) texels[x] = cell;
        }
      }
    }
    ++picture.made;
    if (ScanClock::now() >= deadline) break;
  }
  return picture.done();
}

CellAt shown_cell(const ReducedMatrix& picture, const MatrixScan& scan, const CellValue& value,
                  const CellAbsent& absent, std::int64_t row, std::int64_t column) {
  const auto start = [](std::int64_t at, std::int64_t first, std::int64_t step) {
    return first + (at - first) / step * step;
  };
  const std::int64_t top = start(row, picture.first_row, picture.row_step);
  const std::int64_t left = start(column, picture.first_column, picture.column_step);
  CellAt best{row, column};
  double heaviest = -2;
  for (std::int64_t r = top; r < std::min(top + picture.row_step, scan.rows()); ++r) {
    for (std::int64_t c = left; c < std::min(left + picture.column_step, scan.columns()); ++c) {
      const double w = weight(scan.cell(value, absent, r, c));
      if (w > heaviest) {
        heaviest = w;
        best = {r, c};
      }
    }
  }
  return best;
}

}  // namespace attnscope
