#include "app/gui/history_plot.h"

#include <fmt/format.h>
#include <implot.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/text/format.h"

namespace attnscope::gui {

// The step nearest to the mouse, with its tooltip; the one that is clicked.
std::optional<std::int64_t> HistoryPlot::pick(const NumberHistory& values,
                                              const NumberWords& words) const {
  if (!ImPlot::IsPlotHovered()) return std::nullopt;
  const double x = ImPlot::GetPlotMousePos().x;
  const auto nearest = std::min_element(steps_.begin(), steps_.end(), [x](double a, double b) {
    return std::fabs(a - x) < std::fabs(b - x);
  });
  const auto step = static_cast<std::int64_t>(*nearest);
  const NumberValue& at = values.at(step);
  std::string text = fmt::format("step {}\n{} {}", step, words.value, format_exact(at.value));
  if (words.beside != nullptr) {
    text += fmt::format("\n{} {}", words.beside,
                        std::isnan(at.beside) ? "not compared" : format_exact(at.beside));
  }
  if (!at.what.empty()) text += "\n" + at.what;
  tooltip(text + "\nclick: goes there");
  if (ImGui::IsMouseClicked(ImGuiMouseButton_Left)) return step;
  return std::nullopt;
}

std::optional<std::int64_t> HistoryPlot::draw(const NumberHistory& values, std::uint64_t version,
                                              NumberKind kind, std::int64_t cursor, ImVec2 size) {
  if (version != version_) {
    version_ = version;
    steps_.clear();
    values_.clear();
    beside_.clear();
    for (const auto& [step, value] : values) {
      steps_.push_back(static_cast<double>(step));
      values_.push_back(value.value);
      beside_.push_back(value.beside);
    }
  }
  if (steps_.empty()) return std::nullopt;
  const NumberWords& words = number_words(kind);
  // One curve is named by what stands above it.
  ImPlotFlags flags = ImPlotFlags_NoTitle | ImPlotFlags_NoMenus;
  if (words.beside == nullptr) flags |= ImPlotFlags_NoLegend;
  if (!ImPlot::BeginPlot("##history", size, flags)) {
    return std::nullopt;
  }
  // A low plot keeps its curve: the legend lies inside and the axis goes without its name.
  const bool low = size.y < px(170);
  ImPlot::SetupAxis(ImAxis_X1, low ? nullptr : "step", ImPlotAxisFlags_None);
  ImPlot::SetupAxis(ImAxis_Y1, nullptr, ImPlotAxisFlags_AutoFit);
  const double first = steps_.front(), last = std::max(steps_.back(), first + 3);
  ImPlot::SetupAxisLimits(ImAxis_X1, first - 0.5, last + 0.5, ImPlotCond_Always);
  std::vector<double> whole;  // steps are whole numbers
  const double stride = std::max(1.0, std::ceil((last - first + 1) / 8));
  for (int i = 0; first + i * stride <= last; ++i) whole.push_back(first + i * stride);
  ImPlot::SetupAxisFormat(ImAxis_X1, "%.0f");
  ImPlot::SetupAxisTicks(ImAxis_X1, whole.data(), static_cast<int>(whole.size()));
  ImPlot::SetupLegend(
      low ? ImPlotLocation_NorthEast : ImPlotLocation_North,
      ImPlotLegendFlags_Horizontal | (low ? ImPlotLegendFlags_None : ImPlotLegendFlags_Outside));
  const auto count = static_cast<int>(steps_.size());
  const auto colour = [](ImU32 c) { return ImGui::ColorConvertU32ToFloat4(c); };
  ImPlotSpec line;
  line.LineColor = colour(theme().text_dim);
  line.Marker = ImPlotMarker_Cross;
  line.MarkerLineColor = line.LineColor;
  const bool compared =
      words.beside != nullptr &&
      std::any_of(beside_.begin(), beside_.end(), [](double v) { return !std::isnan(v); });
  if (compared) {
    ImPlot::PlotLine(words.beside, steps_.data(), beside_.data(), count, line);
  }
  line.LineColor = line.MarkerFillColor = line.MarkerLineColor = colour(theme().accent);
  line.Marker = ImPlotMarker_Circle;
  line.MarkerSize = px(3);
  ImPlot::PlotLine(words.value, steps_.data(), values_.data(), count, line);
  const double here = static_cast<double>(cursor);
  ImPlotSpec mark;
  mark.LineColor = colour(theme().text_faint);
  mark.Flags = ImPlotItemFlags_NoLegend;
  ImPlot::PlotInfLines("##here", &here, 1, mark);
  const auto clicked = pick(values, words);
  ImPlot::EndPlot();
  return clicked;
}

}  // namespace attnscope::gui
