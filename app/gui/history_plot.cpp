#include "app/gui/history_plot.h"

#include <fmt/format.h>
#include <implot.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/text/format.h"

namespace attnscope::gui {

void HistoryPlot::refresh(const Workbench& bench, const FollowedElement& element) {
  std::shared_ptr<const Snapshot> now = bench.shared_snapshot();
  const bool same = held_ && held_->info == now->info && element_.same_as(element);
  const bool same_picture = now == held_;
  element_ = element;
  held_ = std::move(now);
  if (!same) {
    history_ = {};
    scan_.restart();
  }
  if (const Capture* capture = bench.capture()) {
    if (same && !scan_.reading()) return;
    scan_.read_on(*capture,
                  [&](const StepTrace& step) { add_to_history(step, element_, history_); });
  } else if (!same || !same_picture) {
    history_ = element_history(held_->traces, element_);
  }
}

// The step nearest to the mouse, with its tooltip; the one that is clicked.
std::optional<std::int64_t> HistoryPlot::pick() const {
  if (!ImPlot::IsPlotHovered()) return std::nullopt;
  const double x = ImPlot::GetPlotMousePos().x;
  const auto nearest =
      std::min_element(history_.steps.begin(), history_.steps.end(),
                       [x](double a, double b) { return std::fabs(a - x) < std::fabs(b - x); });
  const auto i = static_cast<std::size_t>(nearest - history_.steps.begin());
  const auto step = static_cast<std::int64_t>(*nearest);
  tooltip(fmt::format(
      "step {}\nengine {}\nref.sim {}", step, format_exact(history_.values[i]),
      std::isnan(history_.references[i]) ? "not compared" : format_exact(history_.references[i])));
  if (ImGui::IsMouseClicked(ImGuiMouseButton_Left)) return step;
  return std::nullopt;
}

std::optional<std::int64_t> HistoryPlot::draw(const Workbench& bench,
                                              const FollowedElement& element,
                                              const std::string& what, ImVec2 size) {
  refresh(bench, element);
  const std::int64_t cursor = bench.cursor().step;
  const char* which = bench.capture() != nullptr ? "recorded" : "kept";
  const std::string text = history_sentence(history_, what, cursor, which) + scan_.rest();
  ImGui::TextWrapped("%s", text.c_str());
  if (history_.steps.empty()) return std::nullopt;
  size.y = std::max(px(60), ImGui::GetContentRegionAvail().y);
  if (!ImPlot::BeginPlot("##history", size, ImPlotFlags_NoTitle | ImPlotFlags_NoMenus)) {
    return std::nullopt;
  }
  // A low plot keeps its curve: the legend lies inside and the axis goes without its name.
  const bool low = size.y < px(170);
  ImPlot::SetupAxis(ImAxis_X1, low ? nullptr : "step", ImPlotAxisFlags_None);
  ImPlot::SetupAxis(ImAxis_Y1, nullptr, ImPlotAxisFlags_AutoFit);
  const double first = history_.steps.front(), last = std::max(history_.steps.back(), first + 3);
  ImPlot::SetupAxisLimits(ImAxis_X1, first - 0.5, last + 0.5, ImPlotCond_Always);
  std::vector<double> whole;  // steps are whole numbers
  const double stride = std::max(1.0, std::ceil((last - first + 1) / 8));
  for (int i = 0; first + i * stride <= last; ++i) whole.push_back(first + i * stride);
  ImPlot::SetupAxisFormat(ImAxis_X1, "%.0f");
  ImPlot::SetupAxisTicks(ImAxis_X1, whole.data(), static_cast<int>(whole.size()));
  ImPlot::SetupLegend(
      low ? ImPlotLocation_NorthEast : ImPlotLocation_North,
      ImPlotLegendFlags_Horizontal | (low ? ImPlotLegendFlags_None : ImPlotLegendFlags_Outside));
  const auto count = static_cast<int>(history_.steps.size());
  const auto colour = [](ImU32 c) { return ImGui::ColorConvertU32ToFloat4(c); };
  ImPlotSpec line;
  line.LineColor = colour(theme().text_dim);
  line.Marker = ImPlotMarker_Cross;
  line.MarkerLineColor = line.LineColor;
  const bool compared = std::any_of(history_.references.begin(), history_.references.end(),
                                    [](double v) { return !std::isnan(v); });
  if (compared) {
    ImPlot::PlotLine("ref.sim", history_.steps.data(), history_.references.data(), count, line);
  }
  line.LineColor = line.MarkerFillColor = line.MarkerLineColor = colour(theme().accent);
  line.Marker = ImPlotMarker_Circle;
  line.MarkerSize = px(3);
  ImPlot::PlotLine("engine", history_.steps.data(), history_.values.data(), count, line);
  const double here = static_cast<double>(cursor);
  ImPlotSpec mark;
  mark.LineColor = colour(theme().text_faint);
  mark.Flags = ImPlotItemFlags_NoLegend;
  ImPlot::PlotInfLines("##here", &here, 1, mark);
  const auto clicked = pick();
  ImPlot::EndPlot();
  return clicked;
}

}  // namespace attnscope::gui
