#include "app/gui/heat_map_picture.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "app/gui/theme.h"

namespace attnscope::gui {
namespace {

constexpr int kTable = 512;

bool same_part(const ReducedMatrix& a, const ReducedMatrix& b) {
  return a.first_row == b.first_row && a.first_column == b.first_column && a.rows == b.rows &&
         a.columns == b.columns && a.row_step == b.row_step && a.column_step == b.column_step;
}

std::int64_t step_for(double cells, float pixels) {
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(cells / pixels)));
}

// Colours of cells that are no finite value inside the range, as a pattern of texels.
ImU32 texel_colour(float cell, int x, int y, const ColourRange& range,
                   HeatMapPicture::Patterns patterns) {
  const Theme& t = theme();
  if (is_absent(cell)) return patterns.absent && (x + y) % 4 == 0 ? t.hatch : t.panel;
  if (std::isnan(cell)) return t.nan_cell;
  if (std::isinf(cell)) return cell > 0 ? t.inf_positive : t.inf_negative;
  if (patterns.outside && range.outside(cell) && (x + y) % 3 == 0) return t.out_of_range;
  return range.colour(cell);
}

}  // namespace

void ColourRange::set(double min, double max, bool is_signed) {
  const ImU32 mark = theme().panel ^ theme().nan_cell ^ magnitude_colour(0.3f) ^
                     signed_colour(0.5f) * 31u ^ signed_colour(0) * 7u;
  if (min == min_ && max == max_ && is_signed == is_signed_ && mark == mark_ && !table_.empty()) {
    return;
  }
  min_ = min;
  max_ = max;
  is_signed_ = is_signed;
  mark_ = mark;
  ++version_;
  table_.resize(kTable);
  const double reach = std::max(std::fabs(min), std::fabs(max));
  for (int i = 0; i < kTable; ++i) {
    const double unit = static_cast<double>(i) / (kTable - 1);
    const double value = min + unit * (max - min);
    table_[static_cast<std::size_t>(i)] =
        is_signed ? signed_colour(reach > 0 ? static_cast<float>(value / reach) : 0.0f)
                  : magnitude_colour(static_cast<float>(unit));
  }
}

ImU32 ColourRange::at(float unit) const {
  const long index = std::lround(std::clamp(unit, 0.0f, 1.0f) * (kTable - 1));
  return table_[static_cast<std::size_t>(index)];
}

ImU32 ColourRange::colour(double value) const {
  const double span = max_ - min_;
  return at(span > 0 ? static_cast<float>((value - min_) / span) : 0.5f);
}

void HeatMapPicture::forget() {
  for (Layer* layer : {&whole_, &detail_}) {
    layer->valid = false;
    layer->next = {};
  }
  use_detail_ = false;
}

void HeatMapPicture::Layer::colour(const ColourRange& range, Patterns wanted) {
  std::vector<ImU32> pixels(matrix.texels.size());
  for (int y = 0; y < matrix.height; ++y) {
    for (int x = 0; x < matrix.width; ++x) {
      const std::size_t i = static_cast<std::size_t>(y) * matrix.width + x;
      pixels[i] = texel_colour(matrix.texels[i], x, y, range, wanted);
    }
  }
  texture.update(matrix.width, matrix.height, pixels);
  coloured = range.version();
  patterns = wanted;
}

void HeatMapPicture::Layer::draw(ImDrawList* list, ImVec2 min, ImVec2 max,
                                 const CellRect& view) const {
  if (!valid || texture.empty() || matrix.width == 0) return;
  // The part of the view that this layer covers.
  const double x0 = std::max(view.x0, static_cast<double>(matrix.first_column));
  const double x1 = std::min(view.x1, static_cast<double>(matrix.first_column + matrix.columns));
  const double y0 = std::max(view.y0, static_cast<double>(matrix.first_row));
  const double y1 = std::min(view.y1, static_cast<double>(matrix.first_row + matrix.rows));
  if (x1 <= x0 || y1 <= y0) return;
  const auto across = [&](double x) {
    return min.x + static_cast<float>((x - view.x0) / (view.x1 - view.x0)) * (max.x - min.x);
  };
  const auto down = [&](double y) {
    return min.y + static_cast<float>((y - view.y0) / (view.y1 - view.y0)) * (max.y - min.y);
  };
  const auto texel_x = [&](double x) {
    return static_cast<float>((x - static_cast<double>(matrix.first_column)) /
                              static_cast<double>(matrix.column_step));
  };
  const auto texel_y = [&](double y) {
    return static_cast<float>((y - static_cast<double>(matrix.first_row)) /
                              static_cast<double>(matrix.row_step));
  };
  texture.draw(list, {across(x0), down(y0)}, {across(x1), down(y1)}, texel_x(x0), texel_y(y0),
               texel_x(x1), texel_y(y1));
}

bool HeatMapPicture::update(Layer& layer, ReducedMatrix wanted, const MatrixScan& scan,
                            const CellValue& value, const CellAbsent& absent, Patterns patterns,
                            const ColourRange& range, ScanClock::time_point deadline) {
  if (!layer.valid || !same_part(layer.matrix, wanted)) {
    if (layer.next.height == 0 || !same_part(layer.next, wanted)) layer.next = std::move(wanted);
    if (!attnscope::advance(layer.next, scan, value, absent, deadline)) return false;
    layer.matrix = std::exchange(layer.next, {});
    layer.valid = true;
    layer.coloured = 0;
  }
  if (layer.coloured != range.version() || layer.patterns != patterns)
    layer.colour(range, patterns);
  return true;
}

bool HeatMapPicture::advance(const MatrixScan& scan, const CellValue& value,
                             const CellAbsent& absent, const CellRect& view, ImVec2 pixels,
                             Patterns patterns, const ColourRange& range,
                             ScanClock::time_point deadline) {
  // Steps of the whole follow the space in coarse steps, so that a drag of a splitter does not make
  // the picture again in every frame.
  const float w = std::max(32.0f, std::floor(pixels.x / 32) * 32);
  const float h = std::max(32.0f, std::floor(pixels.y / 32) * 32);
  const std::int64_t rows = scan.rows(), columns = scan.columns();
  const std::int64_t row_step = step_for(static_cast<double>(rows), h);
  const std::int64_t column_step = step_for(static_cast<double>(columns), w);
  const bool whole =
      update(whole_, reduced_matrix(rows, columns, 0, rows, 0, columns, row_step, column_step),
             scan, value, absent, patterns, range, deadline);
  const std::int64_t fine_row = step_for(view.y1 - view.y0, h);
  const std::int64_t fine_column = step_for(view.x1 - view.x0, w);
  use_detail_ = false;
  if (fine_row >= row_step && fine_column >= column_step) return whole;
  const bool detail =
      update(detail_,
             reduced_matrix(rows, columns, static_cast<std::int64_t>(view.y0),
                            static_cast<std::int64_t>(std::ceil(view.y1)),
                            static_cast<std::int64_t>(view.x0),
                            static_cast<std::int64_t>(std::ceil(view.x1)), fine_row, fine_column),
             scan, value, absent, patterns, range, deadline);
  use_detail_ = detail;
  return whole && detail;
}

void HeatMapPicture::draw(ImDrawList* list, ImVec2 min, ImVec2 max, const CellRect& view) const {
  (use_detail_ ? detail_ : whole_).draw(list, min, max, view);
}

const ReducedMatrix* HeatMapPicture::shown() const {
  const Layer& layer = use_detail_ ? detail_ : whole_;
  return layer.valid ? &layer.matrix : nullptr;
}

}  // namespace attnscope::gui
