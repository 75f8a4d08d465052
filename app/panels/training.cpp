// Training: curves of what attnscope train has come to, read anew while it runs.
#include <fmt/format.h>
#include <imgui.h>
#include <implot.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>

#include "app/gui/legend_row.h"
#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/panels/panels.h"
#include "app/text/format.h"
#include "app/views/training_view.h"
#include "engine/io/json_file.h"
#include "engine/io/trained_models.h"

namespace attnscope::gui {
namespace {

constexpr double kLookEvery = 1;  // seconds

class TrainingPanel : public Panel {
 public:
  TrainingPanel() : Panel("training", "Training") {}
  void register_commands(Ui& ui) override;
  void draw(Ui& ui) override;
  double seconds_to_look() const override { return kLookEvery; }

 private:
  void look(bool anew);
  void read();
  void draw_legend() const;
  void tell(const TrainingPlot& plot) const;
  ImU32 colour_of(const std::string& curve) const;
  void draw_plot(const TrainingPlot& plot, int index, ImVec2 size) const;

  double looked_ = -kLookEvery;
  std::string folder_, refused_;
  std::vector<TrainingTable> tables_;
  std::string shown_;  // path
  std::filesystem::file_time_type written_;
  TrainingView view_;
  std::vector<std::string> names_;  // of its curves
};

void TrainingPanel::register_commands(Ui& ui) {
  ui.commands.add({.id = "training.show",
                   .title = "Training: show ..",
                   .group = "View",
                   .help = "Shows the curves of one training, by its name in the panel.",
                   .argument = "NAME",
                   .run = [this, &ui](std::string_view value) -> Result<void> {
                     look(true);
                     for (const TrainingTable& table : tables_) {
                       if (table.name != value) continue;
                       shown_ = table.path;
                       read();
                       return ui.commands.run("panel.training");
                     }
                     return usage_error(fmt::format("no training \"{}\" in {}", value, folder_),
                                        tables_.empty()
                                            ? "begin one: attnscope train model tiny-v3.2"
                                            : "such as \"" + tables_.front().name + "\"");
                   },
                   .in_menu = false});
}

// What there is, and whether what is shown has grown.
void TrainingPanel::look(bool anew) {
  if (!anew && ImGui::GetTime() < looked_ + kLookEvery) return;
  looked_ = ImGui::GetTime();
  const auto folder = trained_folder();
  folder_ = folder ? *folder : "";
  tables_ = folder ? training_tables(folder_) : std::vector<TrainingTable>();
  const auto known = std::ranges::find(tables_, shown_, &TrainingTable::path);
  if (known == tables_.end()) {
    shown_ = tables_.empty() ? "" : tables_.front().path;
    written_ = {};
  }
  std::error_code code;
  if (!shown_.empty() && std::filesystem::last_write_time(shown_, code) != written_) read();
}

void TrainingPanel::read() {
  std::error_code code;
  written_ = std::filesystem::last_write_time(shown_, code);
  refused_.clear();
  view_ = {};
  const auto text = read_text_file(shown_);
  auto view = text ? training_view(*text, shown_) : Result<TrainingView>(text.error());
  names_.clear();
  if (view) {
    view_ = std::move(*view);
    for (const TrainingPlot& plot : view_.plots) {
      for (const TrainingCurve& curve : plot.curves) {
        if (std::ranges::count(names_, curve.name) == 0) names_.push_back(curve.name);
      }
    }
  } else {
    refused_ = view.error().text();
  }
}

// A curve of the same name has one colour in all plots.
ImU32 TrainingPanel::colour_of(const std::string& curve) const {
  const auto at = std::ranges::find(names_, curve) - names_.begin();
  return theme().owners[static_cast<std::size_t>(at) % theme().owners.size()];
}

// Once for all plots, which are too small for legends of their own.
void TrainingPanel::draw_legend() const {
  LegendRow row;
  for (const std::string& name : names_) row.swatch(colour_of(name), name);
}

// Over a plot: what it shows, and its values at the step nearest to the mouse.
void TrainingPanel::tell(const TrainingPlot& plot) const {
  if (!ImPlot::IsPlotHovered()) return;
  const double x = ImPlot::GetPlotMousePos().x;
  std::string text = plot.about;
  std::optional<double> step;
  for (const TrainingCurve& curve : plot.curves) {
    for (const double at : curve.steps) {
      if (!step || std::fabs(at - x) < std::fabs(*step - x)) step = at;
    }
  }
  if (step) text += fmt::format("\nstep {:.0f}", *step);
  for (const TrainingCurve& curve : plot.curves) {
    const auto at = step ? std::ranges::find(curve.steps, *step) : curve.steps.end();
    if (at == curve.steps.end()) continue;
    const auto index = static_cast<std::size_t>(at - curve.steps.begin());
    text += fmt::format("\n{} {}", curve.name, format_number(curve.values[index]));
  }
  for (const auto& [last, stage] : view_.stages) {
    text += fmt::format("\nline: stage {} begins behind step {:.0f}", stage, last);
  }
  tooltip(text);
}

void TrainingPanel::draw_plot(const TrainingPlot& plot, int index, ImVec2 size) const {
  if (!ImPlot::BeginPlot(fmt::format("{}##{}", plot.title, index).c_str(), size,
                         ImPlotFlags_NoMenus | ImPlotFlags_NoMouseText | ImPlotFlags_NoLegend)) {
    return;
  }
  ImPlot::SetupAxis(ImAxis_X1, nullptr, ImPlotAxisFlags_AutoFit);
  ImPlot::SetupAxis(ImAxis_Y1, nullptr, plot.share ? 0 : ImPlotAxisFlags_AutoFit);
  if (plot.share) ImPlot::SetupAxisLimits(ImAxis_Y1, 0, 1, ImPlotCond_Always);
  for (const TrainingCurve& curve : plot.curves) {
    ImPlotSpec line;
    line.LineColor = ImGui::ColorConvertU32ToFloat4(colour_of(curve.name));
    line.Marker = ImPlotMarker_Circle;
    line.MarkerSize = px(2);
    line.MarkerFillColor = line.MarkerLineColor = line.LineColor;
    ImPlot::PlotLine(curve.name.c_str(), curve.steps.data(), curve.values.data(),
                     static_cast<int>(curve.steps.size()), line);
  }
  for (const auto& [step, stage] : view_.stages) {
    ImPlotSpec mark;
    mark.LineColor = ImGui::ColorConvertU32ToFloat4(theme().text_faint);
    ImPlot::PlotInfLines(("##" + stage).c_str(), &step, 1, mark);
  }
  tell(plot);
  ImPlot::EndPlot();
}

void TrainingPanel::draw(Ui& ui) {
  look(false);
  if (tables_.empty()) {
    return empty_state(
        ui, folder_.empty() ? "No folder for trained models: neither XDG_DATA_HOME nor HOME is set."
                            : fmt::format("Nothing has been trained: {} holds no table. "
                                          "attnscope train model tiny-v3.2 begins one.",
                                          folder_));
  }
  const auto shown = std::ranges::find(tables_, shown_, &TrainingTable::path);
  ImGui::SetNextItemWidth(std::min(ImGui::GetContentRegionAvail().x, px(320)));
  if (ImGui::BeginCombo("##training", shown->name.c_str())) {
    for (const TrainingTable& table : tables_) {
      if (ImGui::Selectable(table.name.c_str(), table.path == shown_)) {
        ui.run("training.show=" + table.name);
      }
    }
    ImGui::EndCombo();
  }
  if (!refused_.empty()) return paragraph(refused_, Verdict::kWrong);
  sentence(view_.sentence);
  draw_legend();
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const int across = room.x > px(560) ? 3 : room.x > px(360) ? 2 : 1;
  const int down = (static_cast<int>(view_.plots.size()) + across - 1) / std::max(across, 1);
  const float gap = ImGui::GetStyle().ItemSpacing.x;
  const ImVec2 size{(room.x - gap * static_cast<float>(across - 1)) / static_cast<float>(across),
                    std::max(px(120), (room.y - gap * static_cast<float>(down - 1)) /
                                          static_cast<float>(std::max(down, 1)))};
  for (std::size_t i = 0; i < view_.plots.size(); ++i) {
    if (i % static_cast<std::size_t>(across) != 0) ImGui::SameLine(0, gap);
    draw_plot(view_.plots[i], static_cast<int>(i), size);
  }
}

}  // namespace

std::unique_ptr<Panel> make_training_panel() { return std::make_unique<TrainingPanel>(); }

}  // namespace attnscope::gui
