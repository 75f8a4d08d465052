// Pool sweeps: what pools of rows of other sizes would miss, over the selections of what is open or
// over generated ones.
#include <fmt/format.h>
#include <implot.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <vector>

#include "app/gui/command_group.h"
#include "app/gui/data_table.h"
#include "app/gui/legend_row.h"
#include "app/gui/tables_state.h"
#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/panels/panels.h"
#include "app/text/format.h"
#include "app/views/row_sweep_view.h"
#include "app/workbench/row_sweep_run.h"

namespace attnscope::gui {
namespace {

TableCell share_cell(const std::optional<double>& share) {
  if (!share) return {"-"};
  return {format_number(100 * *share), 0, 100 * *share, true};
}
TableCell rate_cell(const std::optional<double>& rate) {
  if (!rate) return {"-"};
  return {format_number(*rate), 0, *rate, true, format_exact(*rate)};
}

ImU32 curve_colour(std::size_t i) { return theme().owners[i % theme().owners.size()]; }

class RowSweepPanel : public Panel {
 public:
  RowSweepPanel() : Panel("row_sweep", "Pool sweeps") { table_.least_width = 620; }
  void register_commands(Ui& ui) override;
  void draw(Ui& ui) override;
  bool animating() const override { return run_.running().has_value(); }
  std::string failure() const override { return run_.error(); }

 private:
  Result<void> generate(std::string_view value);
  void draw_controls(Ui& ui);
  void draw_plot(const SweepPlot& plot, int index, ImVec2 size) const;
  void draw_curves(const SweepPlot& plot, int index, ImVec2 size) const;
  void fill_table();

  RowSweepRun run_;
  RowSweepView view_;
  std::uint64_t version_ = 0;
  GeneratorOptions options_{.batch = 4, .steps = 32};
  DataTable table_;
};

// "overlap=0.85+batch=4": what is not named stays as it was. A comma parts numbers, too, but on
// the command line the commands.
Result<void> RowSweepPanel::generate(std::string_view value) {
  GeneratorOptions options = options_;
  const auto refuse = [&](std::string_view part) {
    return usage_error(fmt::format("\"{}\": no number of generated selections", part),
                       "such as overlap=0.85+batch=4+context=32768+top-k=2048+steps=32");
  };
  for (std::size_t begin = 0; begin < value.size();) {
    const std::string_view part = value.substr(begin, value.find_first_of("+,", begin) - begin);
    begin += part.size() + 1;
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos) return refuse(part);
    const std::string_view name = part.substr(0, equals), number = part.substr(equals + 1);
    const auto read = [&](auto& into) {
      const auto done = std::from_chars(number.data(), number.data() + number.size(), into);
      return done.ec == std::errc{} && done.ptr == number.data() + number.size();
    };
    const bool known = name == "overlap"   ? read(options.overlap)
                       : name == "batch"   ? read(options.batch)
                       : name == "context" ? read(options.context)
                       : name == "top-k"   ? read(options.topk)
                       : name == "steps"   ? read(options.steps)
                                           : false;
    if (!known) return refuse(part);
  }
  if (auto ok = run_.begin(options); !ok) return ok;
  options_ = options;
  return {};
}

void RowSweepPanel::register_commands(Ui& ui) {
  Workbench& bench = ui.bench;
  ui.commands.add({.id = "row_sweep.own",
                   .title = "Pool sweeps: of what is open",
                   .group = "View",
                   .help = "Tries pools of rows on what the capture that is open selected, or the "
                           "session, whose steps run again beside it.",
                   .run = [this, &bench, &ui](std::string_view) -> Result<void> {
                     if (auto ok = run_.begin(bench); !ok) return ok;
                     return ui.commands.run("panel.row_sweep");
                   },
                   .in_menu = false});
  ui.commands.add({.id = "row_sweep.generate",
                   .title = "Pool sweeps: of generated selections",
                   .group = "View",
                   .help = "Tries pools of rows on selections that are made with a given overlap: "
                           "overlap=0.85+batch=4+context=32768.",
                   .argument = "[NAME=NUMBER+..]",
                   .run = [this, &ui](std::string_view value) -> Result<void> {
                     if (auto ok = generate(value); !ok) return ok;
                     return ui.commands.run("panel.row_sweep");
                   },
                   .in_menu = false});
  ui.commands.add({.id = "row_sweep.stop",
                   .title = "Pool sweeps: stop",
                   .group = "View",
                   .help = "What was shown before stays.",
                   .run = [this](std::string_view) -> Result<void> {
                     run_.stop();
                     return {};
                   },
                   .enabled = [this] { return run_.running().has_value(); },
                   .why_disabled = "no sweep is running",
                   .in_menu = false});
}

void RowSweepPanel::draw_controls(Ui& ui) {
  if (const auto share = run_.running()) {
    running_bar(ui, *share, "trying pools", "row_sweep.stop");
    return;
  }
  const bool capture = ui.bench.capture() != nullptr;
  command_button(ui, "row_sweep.own", capture ? "Of this capture" : "Of this session");
  ImGui::SameLine();
  command_button(ui, "row_sweep.generate", "Generated");
}

// Names of curves stand below: in a small plot they would lie over the curves.
void RowSweepPanel::draw_plot(const SweepPlot& plot, int index, ImVec2 size) const {
  ImGui::BeginChild(fmt::format("##plot{}", index).c_str(), {size.x, 0},
                    ImGuiChildFlags_AutoResizeY,
                    ImGuiWindowFlags_NoScrollbar | ImGuiWindowFlags_NoScrollWithMouse);
  draw_curves(plot, index, size);
  LegendRow row;
  const std::size_t named = std::min(plot.curves.size(), theme().owners.size());
  for (std::size_t i = 0; i < named; ++i) row.swatch(curve_colour(i), plot.curves[i].name);
  // Their colours come a second time.
  if (named < plot.curves.size()) {
    dim(fmt::format("{} more, to {}: the table has them", plot.curves.size() - named,
                    plot.curves.back().name));
  }
  ImGui::EndChild();
}

void RowSweepPanel::draw_curves(const SweepPlot& plot, int index, ImVec2 size) const {
  if (!ImPlot::BeginPlot(fmt::format("{}##{}", plot.title, index).c_str(), size,
                         ImPlotFlags_NoMenus | ImPlotFlags_NoMouseText | ImPlotFlags_NoLegend)) {
    return;
  }
  ImPlot::SetupAxis(ImAxis_X1, plot.x.c_str(), ImPlotAxisFlags_AutoFit);
  ImPlot::SetupAxis(ImAxis_Y1, nullptr, plot.share ? 0 : ImPlotAxisFlags_AutoFit);
  if (plot.log_x) ImPlot::SetupAxisScale(ImAxis_X1, ImPlotScale_Log10);
  if (plot.share) ImPlot::SetupAxisLimits(ImAxis_Y1, 0, 1, ImPlotCond_Always);
  for (std::size_t i = 0; i < plot.curves.size(); ++i) {
    const SweepCurve& curve = plot.curves[i];
    ImPlotSpec line;
    line.LineColor = ImGui::ColorConvertU32ToFloat4(curve_colour(i));
    line.Marker = ImPlotMarker_Circle;
    line.MarkerSize = px(2);
    line.MarkerFillColor = line.MarkerLineColor = line.LineColor;
    const auto count = static_cast<int>(curve.x.size());
    if (plot.dots) {
      ImPlot::PlotScatter(curve.name.c_str(), curve.x.data(), curve.y.data(), count, line);
    } else {
      ImPlot::PlotLine(curve.name.c_str(), curve.x.data(), curve.y.data(), count, line);
    }
  }
  ImPlot::EndPlot();
}

void RowSweepPanel::fill_table() {
  table_.begin(version_);
  if (!table_.stale()) return;
  table_.columns({{"of", false, 1.1f},
                  {"layer", true, 0.5f},
                  {"pool rows", true, 0.8f},
                  {"missed %", true, 0.7f},
                  {"overlap %", true, 0.7f, "Of selected rows: those that the step before had."},
                  {"none", true, 0.7f, "Tokens a second by the model, without overlap."},
                  {"PreAttn", true, 0.7f},
                  {"DA", true, 0.7f},
                  {"DBA", true, 0.7f, "Needs two requests."},
                  {"best", false, 0.6f}});
  for (std::size_t i = 0; i < view_.rows.size(); ++i) {
    const SweepRow& row = view_.rows[i];
    const TableCell none{"-"};
    if (!row.refused.empty()) {
      table_.row({{row.of},
                  none,
                  none,
                  {"too small", 0, 0, false, row.refused},
                  none,
                  none,
                  none,
                  none,
                  none,
                  none},
                 static_cast<std::int64_t>(i));
      continue;
    }
    table_.row({{row.of},
                row.layer < 0 ? TableCell{"all"} : whole_cell(row.layer),
                whole_cell(row.pool_rows),
                share_cell(row.missed),
                share_cell(row.overlap),
                rate_cell(row.rates[0]),
                rate_cell(row.rates[1]),
                rate_cell(row.rates[2]),
                rate_cell(row.rates[3]),
                {row.best}},
               static_cast<std::int64_t>(i));
  }
}

void RowSweepPanel::draw(Ui& ui) {
  run_.poll();
  if (version_ != run_.has_made()) {
    view_ = row_sweep_view(*run_.report());
    version_ = run_.has_made();
  }
  if (version_ == 0) {
    sentence(
        "Pools of rows of many sizes, tried on the selections of what is open or on made "
        "ones: nothing has been tried yet.");
  } else {
    sentence(view_.sentence);
  }
  draw_controls(ui);
  if (!run_.error().empty()) paragraph(run_.error(), Verdict::kWrong);
  if (version_ == 0) return;
  // Of which trace all of this is.
  dim(fmt::format("of {}; times are of a model whose constants are assumed", view_.source));
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const int across = room.x > px(900) ? 3 : room.x > px(480) ? 2 : 1;
  const float gap = ImGui::GetStyle().ItemSpacing.x;
  const ImVec2 size{(room.x - gap * static_cast<float>(across - 1)) / static_cast<float>(across),
                    std::clamp(room.y * 0.34f, px(150), px(300))};
  for (std::size_t i = 0; i < view_.plots.size(); ++i) {
    if (i % static_cast<std::size_t>(across) != 0) ImGui::SameLine(0, gap);
    draw_plot(view_.plots[i], static_cast<int>(i), size);
  }
  fill_table();
  const float left = ImGui::GetContentRegionAvail().y;
  table_.draw("##sweep", {-1, std::max(left, px(160))}, -1, true);
}

}  // namespace

std::unique_ptr<Panel> make_row_sweep_panel() { return std::make_unique<RowSweepPanel>(); }

}  // namespace attnscope::gui
