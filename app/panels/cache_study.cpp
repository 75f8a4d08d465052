// Cache study: what every format of keys and values costs the model that is open, over lengths.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "app/gui/command_group.h"
#include "app/gui/data_table.h"
#include "app/gui/legend_row.h"
#include "app/gui/study_picture.h"
#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/panels/panels.h"
#include "app/reports/cache_study_view.h"
#include "app/text/format.h"
#include "app/workbench/cache_study_run.h"

namespace attnscope::gui {
namespace {

class CacheStudyPanel : public Panel {
 public:
  CacheStudyPanel() : Panel("cache_study", "Cache study") { table_.least_width = 520; }
  void register_commands(Ui& ui) override;
  void draw(Ui& ui) override;
  bool animating() const override { return run_.running().has_value(); }
  std::string failure() const override { return run_.error(); }

 private:
  void fill_table();

  CacheStudyRun run_;
  CacheStudyView view_;
  std::uint64_t version_ = 0;
  int again_ = 0;  // tokens that are made anew in formats of their own
  DataTable table_;
};

constexpr int kMostAgain = 1 << 24;

// Of "128+2048+again=32": the lengths, ones that take seconds where there are none, and the tokens
// that are made anew, as they were where it does not say.
struct StudyAsk {
  std::vector<std::int64_t> lengths;
  std::int64_t again = 0;
};

Result<StudyAsk> study_ask(std::string_view value, std::int64_t again) {
  StudyAsk ask{{}, again};
  const std::string_view all = value;
  constexpr std::string_view kAgain = "again=";
  if (const std::size_t at = value.find(kAgain);
      at != std::string_view::npos && (at == 0 || value[at - 1] == '+')) {
    const auto tokens =
        whole_value(value.substr(at + kAgain.size()), "tokens that are made anew", 0, kMostAgain);
    if (!tokens) return tokens.error();
    ask.again = *tokens;
    value = value.substr(0, at == 0 ? 0 : at - 1);
  }
  if (value.empty()) {
    ask.lengths = {128, 512, 2048};
    return ask;
  }
  const char* const end = value.data() + value.size();
  for (const char* at = value.data(); at <= end;) {
    std::int64_t length = 0;
    const auto read = std::from_chars(at, end, length);
    if (read.ec != std::errc{} || (read.ptr != end && *read.ptr != '+')) {
      return usage_error(fmt::format("cache_study.run: '{}' is no list of lengths", all),
                         "such as 128+512+2048 or 128+512+again=32");
    }
    ask.lengths.push_back(length);
    at = read.ptr + 1;
  }
  return ask;
}

void CacheStudyPanel::register_commands(Ui& ui) {
  ui.commands.add({.id = "cache_study.run",
                   .title = "Cache study: run",
                   .group = "View",
                   .help = "Runs a text over rows of keys and values in every format, with the "
                           "weights of the scenario that is open.",
                   .argument = "[TOKENS+TOKENS..][+again=TOKENS]",
                   .run = [this, &ui](std::string_view value) -> Result<void> {
                     auto ask = study_ask(value, again_);
                     if (!ask) return ask.error();
                     if (auto ok = run_.begin(ui.bench, std::move(ask->lengths), ask->again); !ok) {
                       return ok;
                     }
                     again_ = static_cast<int>(ask->again);
                     return ui.commands.run("panel.cache_study");
                   },
                   .in_menu = false});
  ui.commands.add({.id = "cache_study.stop",
                   .title = "Cache study: stop",
                   .group = "View",
                   .help = "What was shown before stays.",
                   .run = [this](std::string_view) -> Result<void> {
                     run_.stop();
                     return {};
                   },
                   .enabled = [this] { return run_.running().has_value(); },
                   .why_disabled = "no study is running",
                   .in_menu = false});
}

void CacheStudyPanel::fill_table() {
  table_.begin(version_);
  if (!table_.stale()) return;
  const auto& formats = run_.report()->formats;
  const bool again = std::ranges::any_of(
      formats, [](const CacheStudyFormat& format) { return format.input_bytes > 0; });
  std::vector<TableColumn> columns = {
      {"format", false, 1.4f},
      {"bytes a token", true, 1, "Of all layers, in the mean of a request of so many tokens."},
      {"tokens", true, 0.8f},
      {"attention", true, 1, "Error of its output, each layer given what bf16 rows gave."},
      {"carried", true, 1, "Error of the hidden state behind the last layer."},
      {"changed", true, 0.7f, "Sampled tokens that are others."}};
  if (again) {
    columns.push_back({"rows anew", true, 0.8f, "Rows of keys and values that were made anew."});
    columns.push_back({"other codes", true, 0.8f, "Of these: would have other codes than before."});
  }
  table_.columns(std::move(columns));
  const auto number = [](double x) -> TableCell {
    return {fmt::format("{:.3g}", x), 0, x, true, format_exact(x)};
  };
  std::int64_t key = 0;
  for (const CacheStudyFormat& format : formats) {
    for (const CacheStudyPoint& point : format.points) {
      std::vector<TableCell> cells = {{format.name},
                                      whole_cell(std::llround(format.bytes_at(point.length))),
                                      whole_cell(point.length),
                                      number(point.error),
                                      number(point.carried),
                                      whole_cell(point.changed)};
      const bool made = format.input_bytes > 0;
      for (const std::int64_t rows : {point.made_anew, point.other_codes}) {
        if (again) cells.push_back(made ? whole_cell(rows) : TableCell{"-"});
      }
      table_.row(std::move(cells), key++);
    }
  }
}

void CacheStudyPanel::draw(Ui& ui) {
  run_.poll();
  if (version_ != run_.has_made()) {
    view_ = cache_study_view(*run_.report());
    version_ = run_.has_made();
  }
  sentence(version_ == 0 ? "What formats of keys and values cost the model that is open: no study "
                           "has run yet."
                         : view_.sentence);
  if (const auto share = run_.running()) {
    running_bar(ui, *share, "running", "cache_study.stop");
  } else {
    command_button(ui, "cache_study.run", "Run");
    ImGui::SameLine();
    ImGui::SetNextItemWidth(px(120));
    if (ImGui::InputInt("tokens made anew", &again_, 16, 128)) {
      again_ = std::clamp(again_, 0, kMostAgain);
    }
    if (ImGui::IsItemHovered()) {
      tooltip(
          "Most attended tokens of each layer whose keys and values are made anew of the layer's "
          "inputs, in formats of their own; 0 = no such formats.");
    }
  }
  if (!run_.error().empty()) paragraph(run_.error(), Verdict::kWrong);
  if (version_ == 0) return;
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const int across = room.x > px(900) ? 3 : room.x > px(480) ? 2 : 1;
  const float gap = ImGui::GetStyle().ItemSpacing.x;
  const ImVec2 size{(room.x - gap * static_cast<float>(across - 1)) / static_cast<float>(across),
                    std::clamp(room.y * 0.5f, px(150), px(300))};
  if (!names_study_curves(size) && !view_.plots.empty()) {
    LegendRow legend;
    for (const StudyCurve& curve : view_.plots.front().curves) {
      legend.swatch(owner_colour(curve.place), curve.name);
    }
  }
  for (std::size_t i = 0; i < view_.plots.size(); ++i) {
    if (i % static_cast<std::size_t>(across) != 0) ImGui::SameLine(0, gap);
    draw_study_plot(view_.plots[i], size);
  }
  fill_table();
  const float left = ImGui::GetContentRegionAvail().y;
  table_.draw("##study", {-1, std::max(left, px(160))}, -1, true);
}

}  // namespace

std::unique_ptr<Panel> make_cache_study_panel() { return std::make_unique<CacheStudyPanel>(); }

}  // namespace attnscope::gui
