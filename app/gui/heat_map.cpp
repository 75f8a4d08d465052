#include "app/gui/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/gui/heat_map_picture.h"
#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/text/format.h"
#include "app/views/matrix_scan.h"

namespace attnscope::gui {
namespace {

constexpr auto kReadTime = std::chrono::microseconds(3500);  // of a frame, for reading values
constexpr float kTextWidth = 34, kTextHeight = 18;           // smallest cell that shows its number
constexpr float kMarkCell = 6;                               // smallest cell with stripes and marks
constexpr double kHatchedColumns = 2048;  // more on screen are hatched by the texture
constexpr float kReadCell = 20;           // a cell that one looks at
constexpr float kWidestCell = 96, kTallestCell = 64;

// Diagonal stripes over a cell whose value lies outside the range.
void draw_stripes(ImDrawList* list, ImVec2 min, ImVec2 max, ImU32 colour) {
  list->PushClipRect(min, max, true);
  const float step = px(5), height = max.y - min.y;
  const int stripes = static_cast<int>(std::ceil((max.x - min.x + height) / step));
  for (int i = 0; i < stripes; ++i) {
    const float x = min.x - height + step * static_cast<float>(i);
    list->AddLine({x, max.y}, {x + height, min.y}, colour, px(1.5f));
  }
  list->PopClipRect();
}

// In as many digits as the width holds, at most 4.
std::string number_that_fits(double value, float width) {
  std::string text = format_number(value);
  for (int digits = 3; digits > 0 && ImGui::CalcTextSize(text.c_str()).x > width; --digits) {
    text = fmt::format("{:.{}g}", value, digits);
  }
  return text;
}

}  // namespace

std::string index_label(const std::function<std::string(std::int64_t)>& name, std::int64_t index) {
  return name ? name(index) : std::to_string(index);
}

std::string cell_text(const HeatMapData& data, std::int64_t row, std::int64_t column) {
  std::string text =
      fmt::format("{} {} \xc2\xb7 {} {}\n", data.row_axis, index_label(data.row_name, row),
                  data.column_axis, index_label(data.column_name, column));
  if (data.absent && data.absent(row, column)) {
    text += "holds no value";
  } else {
    text += fmt::format("{} {}", data.value_name, format_exact(data.value(row, column)));
  }
  if (data.note) {
    const std::string note = data.note(row, column);
    if (!note.empty()) text += "\n" + note;
  }
  return text;
}

struct HeatMap::Impl {
  MatrixScan scan;
  HeatMapPicture picture;
  ColourRange range;
  std::uint64_t version = ~std::uint64_t{0};
  bool started = false, ready = false;
  bool user_range = false;
  bool symmetric = true;
  double user_min = 0, user_max = 1;
  CellRect view;
  bool panned = false;  // since the button went down
  float cell_w = 1, cell_h = 1;
  std::int64_t seen_row = -1, seen_column = -1;  // selected in the last frame
  bool zoom_there = false;                       // to the selected cell

  void read(const HeatMapData& data, ScanClock::time_point deadline);
  void autofit(const HeatMapData& data, double* min, double* max) const;
  void set_range(const HeatMapData& data);
  void controls(const HeatMapData& data, float width);
  void histogram(float width, float height);
  void navigate(const HeatMapData& data, ImVec2 min, ImVec2 size, bool hovered);
  void fit_view(const HeatMapData& data);
  void reveal(const HeatMapData& data, ImVec2 space, std::int64_t row, std::int64_t column);
  struct Cells {
    std::int64_t row, column, end_row, end_column;
  };
  Cells visible(const HeatMapData& data) const;
  bool hatches_over() const;
  void hatches(const HeatMapData& data, ImDrawList* list, ImVec2 min, ImVec2 max) const;
  void marks(const HeatMapData& data, ImDrawList* list, ImVec2 min, ImVec2 max) const;
  void axes(const HeatMapData& data, ImDrawList* list, ImVec2 origin, ImVec2 min, ImVec2 max,
            std::int64_t row, std::int64_t column) const;
  void bar(ImDrawList* list, ImVec2 min, ImVec2 max) const;
  // Of a value on the scale: whole numbers in full.
  std::string scale_text(double value) const {
    const bool whole = scan.stats().whole && std::fabs(value) < 1e9;
    return whole ? fmt::format("{:.0f}", value) : format_number(value);
  }
  void frame(const HeatMapData& data, ImDrawList* list, ImVec2 min, ImVec2 max, std::int64_t row,
             std::int64_t column, bool hover) const;
  void tip(const HeatMapData& data, std::int64_t row, std::int64_t column) const;
  CellAt pick(const HeatMapData& data, ImVec2 min, ImVec2 size, ImVec2 mouse) const;
  ImVec2 at(ImVec2 min, double column, double row) const {
    return {min.x + static_cast<float>(column - view.x0) * cell_w,
            min.y + static_cast<float>(row - view.y0) * cell_h};
  }
};

HeatMap::HeatMap() : impl_(std::make_unique<Impl>()) {}
HeatMap::~HeatMap() = default;
double HeatMap::range_min() const { return impl_->range.min(); }
double HeatMap::range_max() const { return impl_->range.max(); }
void HeatMap::reset_range() { impl_->user_range = false; }
void HeatMap::zoom_to_selected() { impl_->zoom_there = true; }
bool HeatMap::busy() const { return impl_->started && !impl_->ready; }

void HeatMap::Impl::read(const HeatMapData& data, ScanClock::time_point deadline) {
  const bool other_shape = data.rows != scan.rows() || data.columns != scan.columns();
  if (!started || data.version != version || other_shape) {
    scan.start(data.rows, data.columns);
    picture.forget();
    if (!started || other_shape) fit_view(data);
    version = data.version;
    started = true;
  }
  scan.advance(data.value, data.absent, deadline);
  set_range(data);
}

void HeatMap::Impl::autofit(const HeatMapData& data, double* min, double* max) const {
  const MatrixStats& s = scan.stats();
  *min = s.min;
  *max = s.max;
  if (data.low <= data.high) {
    *min = std::min(*min, data.low);
    *max = std::max(*max, data.high);
  }
  if (data.is_signed && symmetric) {
    *max = std::max(std::fabs(*min), std::fabs(*max));
    *min = -*max;
  }
}

void HeatMap::Impl::set_range(const HeatMapData& data) {
  double min = user_min, max = user_max;
  if (!user_range) autofit(data, &min, &max);
  range.set(min, max, data.is_signed);
}

void HeatMap::Impl::fit_view(const HeatMapData& data) {
  view = {0, 0, std::max(1.0, static_cast<double>(data.columns)),
          std::max(1.0, static_cast<double>(data.rows))};
}

// [min] ▁▂▇▃▁ [max] [Fit] [±]
void HeatMap::Impl::controls(const HeatMapData& data, float width) {
  double min = range.min() + 0.0, max = range.max();  // + 0.0: no "-0"
  const char* format = scan.stats().whole ? "%.0f" : "%.4g";
  const double span = std::max(scan.stats().max - scan.stats().min, 1e-12);
  const float speed = static_cast<float>(span / 300);
  const float field = px(78), gap = ImGui::GetStyle().ItemSpacing.x;
  const float buttons = px(34) + (data.is_signed ? px(28) + gap : 0);
  const float strip = width - 2 * field - buttons - 3 * gap;
  bool changed = false;
  ImGui::PushFont(numbers(), 0);
  ImGui::SetNextItemWidth(field);
  changed |=
      ImGui::DragScalar("##min", ImGuiDataType_Double, &min, speed, nullptr, nullptr, format);
  const bool min_changed = changed;
  ImGui::PopFont();
  if (ImGui::IsItemHovered()) tooltip("lower end of the colours: drag, or Ctrl+click to type");
  ImGui::SameLine();
  if (strip > px(40)) {
    histogram(strip, ImGui::GetFrameHeight());
    ImGui::SameLine();
  }
  ImGui::PushFont(numbers(), 0);
  ImGui::SetNextItemWidth(field);
  changed |=
      ImGui::DragScalar("##max", ImGuiDataType_Double, &max, speed, nullptr, nullptr, format);
  ImGui::PopFont();
  if (ImGui::IsItemHovered()) tooltip("upper end of the colours: drag, or Ctrl+click to type");
  if (changed && std::isfinite(min) && std::isfinite(max)) {
    user_range = true;
    if (data.is_signed && symmetric) {
      const double reach = std::fabs(min_changed ? min : max);
      min = -reach;
      max = reach;
    }
    user_min = std::min(min, max);
    user_max = std::max(min, max);
  }
  ImGui::SameLine();
  ImGui::BeginDisabled(!user_range);
  if (ImGui::Button("Fit", {px(34), 0})) user_range = false;
  ImGui::EndDisabled();
  if (ImGui::IsItemHovered(ImGuiHoveredFlags_AllowWhenDisabled)) {
    tooltip(user_range ? "back to the smallest and largest value"
                       : "the colours span the smallest to the largest value");
  }
  if (data.is_signed) {
    ImGui::SameLine();
    if (symmetric) ImGui::PushStyleColor(ImGuiCol_Text, theme().accent);
    const bool was = symmetric;
    if (ImGui::Button("\xc2\xb1", {px(28), 0})) symmetric = !symmetric;
    if (was) ImGui::PopStyleColor();
    if (ImGui::IsItemHovered()) tooltip("same reach on both sides of zero");
  }
  set_range(data);
}

// Counts on a log scale in the colours of the range; drag moves the nearer end.
void HeatMap::Impl::histogram(float width, float height) {
  const ImVec2 min = ImGui::GetCursorScreenPos(), max{min.x + width, min.y + height};
  ImGui::InvisibleButton("##histogram", {width, height});
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->AddRectFilled(min, max, theme().surface, px(2));
  const MatrixStats& s = scan.stats();
  const double low = std::min(s.min, range.min()), high = std::max(s.max, range.max());
  const double span = high - low;
  if (span <= 0) return;
  const auto x_of = [&](double v) { return min.x + static_cast<float>((v - low) / span) * width; };
  std::int64_t most = 1;
  for (const std::int64_t n : scan.histogram()) most = std::max(most, n);
  for (int i = 0; i < MatrixScan::kBins; ++i) {
    const std::int64_t n = scan.histogram()[static_cast<std::size_t>(i)];
    if (n == 0) continue;
    const double bin = (s.max - s.min) / MatrixScan::kBins;
    const double v = s.min + bin * i;
    const float h = static_cast<float>(std::log1p(static_cast<double>(n)) /
                                       std::log1p(static_cast<double>(most))) *
                    (height - px(2));
    const float x0 = x_of(v), x1 = std::max(x0 + 1, x_of(v + bin));
    const bool outside = v + bin < range.min() || v > range.max();
    list->AddRectFilled({x0, max.y - h}, {x1, max.y},
                        outside ? theme().out_of_range : range.colour(v + bin / 2));
  }
  for (const double end : {range.min(), range.max()}) {
    const float x = std::clamp(x_of(end), min.x + 1, max.x - 1);
    list->AddLine({x, min.y}, {x, max.y}, theme().text, px(1.5f));
  }
  if (ImGui::IsItemActive() && ImGui::IsMouseDragging(ImGuiMouseButton_Left, px(1))) {
    const double v = low + span * std::clamp((ImGui::GetMousePos().x - min.x) / width, 0.0f, 1.0f);
    if (!user_range) {
      user_min = range.min();
      user_max = range.max();
      user_range = true;
    }
    (std::fabs(v - user_min) < std::fabs(v - user_max) ? user_min : user_max) = v;
  } else if (ImGui::IsItemHovered()) {
    const double v = low + span * ((ImGui::GetMousePos().x - min.x) / width);
    const double bin = (s.max - s.min) / MatrixScan::kBins;
    const int i = bin > 0 ? static_cast<int>((v - s.min) / bin) : 0;
    const std::int64_t n = i >= 0 && i < MatrixScan::kBins && v >= s.min
                               ? scan.histogram()[static_cast<std::size_t>(i)]
                               : 0;
    tooltip(fmt::format("{} near {} (bar height: log of the count)\ndrag: ends of the colours",
                        plural(n, "value", "values"), format_number(v)));
  }
}

void HeatMap::Impl::navigate(const HeatMapData& data, ImVec2 min, ImVec2 size, bool hovered) {
  const ImGuiIO& io = ImGui::GetIO();
  const double rows = static_cast<double>(data.rows), columns = static_cast<double>(data.columns);
  if (hovered && io.MouseWheel != 0) {
    const double factor = std::pow(0.8, io.MouseWheel);
    const auto zoom = [&](double& a, double& b, double total, float at, double smallest) {
      const double centre = a + (b - a) * at;
      const double span = std::clamp((b - a) * factor, std::min(smallest, total), total);
      a = std::clamp(centre - span * at, 0.0, total - span);
      b = a + span;
    };
    const ImVec2 mouse = ImGui::GetMousePos();
    if (!io.KeyShift) {
      zoom(view.x0, view.x1, columns, (mouse.x - min.x) / size.x, size.x / px(kWidestCell));
    }
    if (!io.KeyCtrl) {
      zoom(view.y0, view.y1, rows, (mouse.y - min.y) / size.y, size.y / px(kTallestCell));
    }
  }
  if (ImGui::IsItemActivated()) panned = false;
  if (ImGui::IsItemActive() && ImGui::IsMouseDragging(ImGuiMouseButton_Left, px(4))) {
    panned = true;
    const auto pan = [](double& a, double& b, double total, double by) {
      const double span = b - a;
      a = std::clamp(a - by, 0.0, total - span);
      b = a + span;
    };
    pan(view.x0, view.x1, columns, io.MouseDelta.x / cell_w);
    pan(view.y0, view.y1, rows, io.MouseDelta.y / cell_h);
  }
  if (hovered && ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Left)) fit_view(data);
}

void HeatMap::Impl::reveal(const HeatMapData& data, ImVec2 space, std::int64_t row,
                           std::int64_t column) {
  const bool moved = row != seen_row || column != seen_column;
  seen_row = row;
  seen_column = column;
  if (!moved && !zoom_there) return;
  const auto show = [&](double& a, double& b, std::int64_t total, std::int64_t index, float room) {
    if (index < 0 || index >= total) return;
    const auto at = static_cast<double>(index), all = static_cast<double>(total);
    double span = b - a;
    if (zoom_there) span = std::min(span, std::max(1.0, static_cast<double>(room / px(kReadCell))));
    if (!zoom_there && at + 1 > a && at < b) return;
    a = std::clamp(at + 0.5 - span / 2, 0.0, all - span);
    b = a + span;
  };
  show(view.x0, view.x1, data.columns, column, space.x);
  show(view.y0, view.y1, data.rows, row, space.y);
  zoom_there = false;
}

CellAt HeatMap::Impl::pick(const HeatMapData& data, ImVec2 min, ImVec2 size, ImVec2 mouse) const {
  if (mouse.x < min.x || mouse.y < min.y || mouse.x >= min.x + size.x ||
      mouse.y >= min.y + size.y) {
    return {};
  }
  const auto row = static_cast<std::int64_t>(view.y0 + (mouse.y - min.y) / cell_h);
  const auto column = static_cast<std::int64_t>(view.x0 + (mouse.x - min.x) / cell_w);
  if (row < 0 || column < 0 || row >= data.rows || column >= data.columns) return {};
  const ReducedMatrix* shown = picture.shown();
  if (shown == nullptr) return {row, column};
  return shown_cell(*shown, scan, data.value, data.absent, row, column);
}

HeatMap::Impl::Cells HeatMap::Impl::visible(const HeatMapData& data) const {
  return {static_cast<std::int64_t>(view.y0), static_cast<std::int64_t>(view.x0),
          std::min<std::int64_t>(data.rows, static_cast<std::int64_t>(view.y1) + 1),
          std::min<std::int64_t>(data.columns, static_cast<std::int64_t>(view.x1) + 1)};
}

bool HeatMap::Impl::hatches_over() const {
  return cell_h >= px(kMarkCell) && view.x1 - view.x0 <= kHatchedColumns;
}

// Runs of absent cells in each row.
void HeatMap::Impl::hatches(const HeatMapData& data, ImDrawList* list, ImVec2 min,
                            ImVec2 max) const {
  if (!hatches_over() || !scan.done() || scan.stats().absent == 0) return;
  const Cells cells = visible(data);
  list->PushClipRect(min, max, true);
  for (std::int64_t r = cells.row; r < cells.end_row; ++r) {
    std::int64_t run = -1;  // first absent cell
    for (std::int64_t c = cells.column; c <= cells.end_column; ++c) {
      const bool absent =
          c < cells.end_column && is_absent(scan.cell(data.value, data.absent, r, c));
      if (absent && run < 0) run = c;
      if (absent || run < 0) continue;
      draw_hatch(list, at(min, static_cast<double>(run), static_cast<double>(r)),
                 at(min, static_cast<double>(c), static_cast<double>(r + 1)));
      run = -1;
    }
  }
  list->PopClipRect();
}

// Stripes, signs of infinities and numbers over the cells that are large enough.
void HeatMap::Impl::marks(const HeatMapData& data, ImDrawList* list, ImVec2 min, ImVec2 max) const {
  if (std::min(cell_w, cell_h) < px(kMarkCell) || !scan.done()) return;
  const MatrixStats& s = scan.stats();
  const bool text = cell_w >= px(kTextWidth) && cell_h >= px(kTextHeight);
  const bool outside = s.finite > 0 && (s.min < range.min() || s.max > range.max());
  if (!text && !outside && s.positive_inf + s.negative_inf == 0) return;
  const Cells cells = visible(data);
  ImGui::PushFont(numbers(), 0);
  list->PushClipRect(min, max, true);
  for (std::int64_t r = cells.row; r < cells.end_row; ++r) {
    for (std::int64_t c = cells.column; c < cells.end_column; ++c) {
      const float v = scan.cell(data.value, data.absent, r, c);
      const ImVec2 a = at(min, static_cast<double>(c), static_cast<double>(r));
      const ImVec2 b{a.x + cell_w, a.y + cell_h};
      if (std::isinf(v)) {
        const ImU32 colour = text_on(v > 0 ? theme().inf_positive : theme().inf_negative);
        draw_cell_text(list, a, b, colour, text ? (v > 0 ? "+inf" : "-inf") : (v > 0 ? "+" : "-"));
      } else if (std::isnan(v)) {
        if (text && !is_absent(v)) draw_cell_text(list, a, b, text_on(theme().nan_cell), "NaN");
      } else {
        if (range.outside(v)) draw_stripes(list, a, b, theme().out_of_range);
        if (!text) continue;
        draw_cell_text(list, a, b, text_on(range.colour(v)),
                       number_that_fits(data.value(r, c), cell_w - px(2)));
      }
    }
  }
  list->PopClipRect();
  ImGui::PopFont();
}

void HeatMap::Impl::axes(const HeatMapData& data, ImDrawList* list, ImVec2 origin, ImVec2 min,
                         ImVec2 max, std::int64_t row, std::int64_t column) const {
  const float line = ImGui::GetTextLineHeight();
  const ImU32 dim = theme().text_dim;
  list->AddText({origin.x, min.y - line - px(3)}, dim, data.row_axis.c_str());
  ImGui::PushFont(numbers(), 0);
  const auto width = [](const std::string& s) { return ImGui::CalcTextSize(s.c_str()).x; };
  const auto step_for = [](double least) {
    std::int64_t step = 1;
    while (static_cast<double>(step) < least) step *= 2;
    return step;
  };
  // Columns, above.
  const float wide = std::max(width(index_label(data.column_name, data.columns - 1)),
                              width(index_label(data.column_name, 0)));
  const std::int64_t dx = step_for((wide + px(10)) / cell_w);
  const auto draw_column = [&](std::int64_t c, ImU32 colour) {
    const std::string name = index_label(data.column_name, c);
    const float centre = at(min, static_cast<double>(c) + 0.5, 0).x;
    if (centre < min.x || centre > max.x) return ImVec2{0, 0};
    const float x =
        std::clamp(centre - width(name) / 2, min.x, std::max(min.x, max.x - width(name)));
    list->AddLine({centre, min.y - px(3)}, {centre, min.y}, colour);
    list->AddText({x, min.y - line - px(3)}, colour, name.c_str());
    return ImVec2{x, x + width(name)};
  };
  const ImVec2 chosen =
      column >= 0 && column < data.columns ? draw_column(column, theme().accent) : ImVec2{0, 0};
  const auto first_column = static_cast<std::int64_t>(std::ceil(view.x0 / static_cast<double>(dx)));
  for (std::int64_t c = first_column * dx; c < data.columns && static_cast<double>(c) < view.x1;
       c += dx) {
    const float centre = at(min, static_cast<double>(c) + 0.5, 0).x;
    if (centre + wide / 2 + px(4) > chosen.x && centre - wide / 2 - px(4) < chosen.y) continue;
    draw_column(c, dim);
  }
  // Rows, to the left.
  const std::int64_t dy = step_for((line + px(1)) / cell_h);
  const auto draw_row = [&](std::int64_t r, ImU32 colour) {
    const std::string name = index_label(data.row_name, r);
    const float centre = at(min, 0, static_cast<double>(r) + 0.5).y;
    if (centre < min.y || centre > max.y) return -2 * line;
    const float y = std::clamp(centre - line / 2, min.y, std::max(min.y, max.y - line));
    list->AddText({min.x - px(5) - width(name), y}, colour, name.c_str());
    return y;
  };
  const float chosen_y = row >= 0 && row < data.rows ? draw_row(row, theme().accent) : -2 * line;
  const auto first_row = static_cast<std::int64_t>(std::ceil(view.y0 / static_cast<double>(dy)));
  for (std::int64_t r = first_row * dy; r < data.rows && static_cast<double>(r) < view.y1;
       r += dy) {
    const float y = at(min, 0, static_cast<double>(r) + 0.5).y - line / 2;
    if (std::fabs(y - chosen_y) < line) continue;
    draw_row(r, dim);
  }
  ImGui::PopFont();
  // The name of the columns ends their row of numbers.
  list->AddText({max.x + px(8), min.y - line - px(3)}, dim, data.column_axis.c_str());
}

void HeatMap::Impl::bar(ImDrawList* list, ImVec2 min, ImVec2 max) const {
  const float line = ImGui::GetTextLineHeight(), height = max.y - min.y;
  const ImVec2 end{min.x + px(10), max.y};
  const int pieces = std::clamp(static_cast<int>(height), 2, 64);
  for (int i = 0; i < pieces; ++i) {
    const float a = static_cast<float>(i) / static_cast<float>(pieces);
    const float b = static_cast<float>(i + 1) / static_cast<float>(pieces);
    list->AddRectFilled({min.x, max.y - b * height}, {end.x, max.y - a * height},
                        range.at((a + b) / 2));
  }
  list->AddRect(min, end, theme().border);
  const int labels = height > 4 * line ? 3 : height > 2 * line ? 2 : 1;
  ImGui::PushFont(numbers(), 0);
  for (int i = 0; i < labels; ++i) {
    const float unit = labels == 1 ? 1 : static_cast<float>(i) / static_cast<float>(labels - 1);
    const double value = range.min() + unit * (range.max() - range.min());
    const float y = std::clamp(max.y - unit * height - line / 2, min.y - px(1), max.y - line);
    list->AddText({end.x + px(4), y}, theme().text_dim, scale_text(value).c_str());
  }
  ImGui::PopFont();
}

void HeatMap::Impl::frame(const HeatMapData& data, ImDrawList* list, ImVec2 min, ImVec2 max,
                          std::int64_t row, std::int64_t column, bool hover) const {
  if ((row < 0 && column < 0) || row >= data.rows || column >= data.columns) return;
  const auto r = static_cast<double>(row), c = static_cast<double>(column);
  ImVec2 a = column < 0 ? ImVec2{min.x, at(min, 0, r).y} : at(min, c, r);
  ImVec2 b = column < 0 ? ImVec2{max.x, a.y + cell_h} : ImVec2{a.x + cell_w, a.y + cell_h};
  if (row < 0) {
    a.y = min.y;
    b.y = max.y;
  }
  if (b.x < min.x || b.y < min.y || a.x > max.x || a.y > max.y) return;
  // A cell of a pixel or two is framed with some room around it.
  const auto widen = [](float& low, float& high) {
    const float more = (px(7) - (high - low)) / 2;
    if (more > 0) {
      low -= more;
      high += more;
    }
  };
  widen(a.x, b.x);
  widen(a.y, b.y);
  list->PushClipRect({min.x - px(4), min.y - px(4)}, {max.x + px(4), max.y + px(4)}, true);
  hover ? draw_hovered(list, a, b) : draw_selected(list, a, b);
  list->PopClipRect();
}

void HeatMap::Impl::tip(const HeatMapData& data, std::int64_t row, std::int64_t column) const {
  std::string text = cell_text(data, row, column);
  const float cell = scan.cell(data.value, data.absent, row, column);
  if (std::isfinite(cell) && range.outside(cell)) text += "\noutside the range of the colours";
  const ReducedMatrix* shown = picture.shown();
  if (shown != nullptr && shown->row_step * shown->column_step > 1) {
    text += fmt::format("\nlargest of the {} cells in this pixel; zoom in to see each",
                        shown->row_step * shown->column_step);
  }
  tooltip(text);
}

HeatMapEvents HeatMap::draw(const char* id, const HeatMapData& data, ImVec2 size,
                            std::int64_t selected_row, std::int64_t selected_column,
                            bool controls) {
  HeatMapEvents events;
  if (data.rows <= 0 || data.columns <= 0 || size.x < px(20) || size.y < px(20)) {
    ImGui::Dummy({std::max(size.x, 1.0f), std::max(size.y, 1.0f)});
    return events;
  }
  Impl& m = *impl_;
  const auto deadline = ScanClock::now() + kReadTime;
  m.read(data, deadline);
  ImGui::PushID(id);
  const ImVec2 top = ImGui::GetCursorScreenPos();
  if (controls) m.controls(data, size.x);
  const ImVec2 origin = ImGui::GetCursorScreenPos();
  const float line = ImGui::GetTextLineHeight();

  // Gutters: names of rows to the left, of columns above, the colour bar to the right.
  ImGui::PushFont(numbers(), 0);
  float left = 0;
  for (const std::int64_t r : {std::int64_t{0}, data.rows / 2, data.rows - 1}) {
    left = std::max(left, ImGui::CalcTextSize(index_label(data.row_name, r).c_str()).x);
  }
  const float bar_width = ImGui::CalcTextSize("-0.0001234").x + px(22);
  ImGui::PopFont();
  left = std::max(left, ImGui::CalcTextSize(data.row_axis.c_str()).x) + px(8);
  const float right = std::max(bar_width, ImGui::CalcTextSize(data.column_axis.c_str()).x + px(12));
  const ImVec2 min{origin.x + left, origin.y + line + px(4)};
  const ImVec2 space{std::max(px(16), size.x - left - right),
                     std::max(px(12), top.y + size.y - min.y)};
  m.reveal(data, space, selected_row, selected_column);
  const double across = m.view.x1 - m.view.x0, down = m.view.y1 - m.view.y0;
  m.cell_w = std::min(static_cast<float>(space.x / across), px(kWidestCell));
  m.cell_h = std::min(static_cast<float>(space.y / down), px(kTallestCell));
  const ImVec2 cells{m.cell_w * static_cast<float>(across), m.cell_h * static_cast<float>(down)};
  const ImVec2 max{min.x + cells.x, min.y + cells.y};

  ImGui::SetCursorScreenPos(min);
  ImGui::InvisibleButton("##cells", cells);
  // Wheel and double click are the map's own, not the scrolling of the panel.
  ImGui::SetItemKeyOwner(ImGuiKey_MouseWheelY);
  const bool over = ImGui::IsItemHovered();
  const bool for_menu = picked_for_menu();
  m.navigate(data, min, cells, over);
  const bool released = ImGui::IsItemDeactivated() && !m.panned;

  const bool small = std::min(m.cell_w, m.cell_h) < px(kMarkCell);
  m.ready = m.scan.done() && m.picture.advance(m.scan, data.value, data.absent, m.view, cells,
                                               {!m.hatches_over(), small}, m.range, deadline);
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->AddRectFilled(min, max, theme().surface);
  m.picture.draw(list, min, max, m.view);
  m.hatches(data, list, min, max);
  m.marks(data, list, min, max);
  list->AddRect({min.x - 1, min.y - 1}, {max.x + 1, max.y + 1}, theme().border);
  const MatrixStats& stats = m.scan.stats();
  if (m.ready && stats.finite > 1 && stats.min == stats.max && small) {
    draw_cell_text(list, min, max, theme().text_dim,
                   fmt::format("every value is {}", format_number(stats.min)));
  }
  if (!m.ready) {
    const std::string text = fmt::format("reading {}", format_share(m.scan.progress()));
    draw_cell_text(list, min, max, theme().text_dim, text);
  }
  m.axes(data, list, origin, min, max, selected_row, selected_column);
  m.bar(list, {max.x + px(8), min.y},
        {max.x + px(8) + bar_width, min.y + std::min(space.y, std::max(cells.y, px(80)))});
  m.frame(data, list, min, max, selected_row, selected_column, false);

  if (over && m.scan.done()) {
    const CellAt cell = m.pick(data, min, cells, ImGui::GetMousePos());
    if (cell.row >= 0) {
      events.hovered = true;
      events.row = cell.row;
      events.column = cell.column;
      m.frame(data, list, min, max, cell.row, cell.column, true);
      if (!ImGui::IsItemActive()) m.tip(data, cell.row, cell.column);
      events.clicked = released || for_menu;
    }
  }
  {
    const auto key = [](ImGuiKey k) {
      return ImGui::Shortcut(ImGuiMod_Alt | k,
                             ImGuiInputFlags_Repeat | ImGuiInputFlags_RouteFocused);
    };
    const std::int64_t dr = (key(ImGuiKey_DownArrow) ? 1 : 0) - (key(ImGuiKey_UpArrow) ? 1 : 0);
    const std::int64_t dc = (key(ImGuiKey_RightArrow) ? 1 : 0) - (key(ImGuiKey_LeftArrow) ? 1 : 0);
    if (dr != 0 || dc != 0) {
      events.clicked = true;
      events.row = std::clamp<std::int64_t>(selected_row + dr, 0, data.rows - 1);
      events.column = std::clamp<std::int64_t>(selected_column + dc, 0, data.columns - 1);
    }
  }
  ImGui::SetCursorScreenPos(top);
  ImGui::Dummy(size);
  ImGui::PopID();
  return events;
}

}  // namespace attnscope::gui
