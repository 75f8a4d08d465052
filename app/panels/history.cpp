// History: numbers of the screen from step to step. What is followed stays until it is removed, and
// is asked for by a right click on a number, or in the palette.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <vector>

#include "app/gui/command_group.h"
#include "app/gui/data_table.h"
#include "app/gui/history_plot.h"
#include "app/gui/icons.h"
#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/panels/panels.h"
#include "app/text/format.h"
#include "app/workbench/followed_history.h"

namespace attnscope::gui {
namespace {

class HistoryPanel : public Panel {
 public:
  HistoryPanel() : Panel("history", "History") {}
  void register_commands(Ui& ui) override;
  void draw(Ui& ui) override;
  bool animating() const override { return reading_; }
  bool scrolls() const override { return false; }

 private:
  struct Followed {
    FollowedNumber number;
    FollowedHistory history;
    std::string not_here;  // in what is open: why
  };
  Result<void> follow(Ui& ui, NumberKind kind);
  Result<Followed*> shown();
  void look_who_is_here(const Snapshot& snapshot);
  void draw_numbers(Ui& ui);
  void draw_again(Ui& ui);
  void draw_table(Ui& ui, Followed& followed);

  std::vector<std::unique_ptr<Followed>> followed_;
  std::size_t shown_ = 0;
  std::shared_ptr<const SessionInfo> looked_in_;
  bool reading_ = false;
  std::uint64_t version_ = 0, table_of_ = 0;
  const Followed* tabled_ = nullptr;
  HistoryPlot plot_;
  const Followed* plotted_ = nullptr;
  DataTable table_;
};

Result<void> HistoryPanel::follow(Ui& ui, NumberKind kind) {
  const Workbench& bench = ui.bench;
  auto number =
      followed_number(kind, {*bench.snapshot()->info, bench.step(), bench.cursor(),
                             bench.selection(), bench.selected_row(), bench.selected_tap()});
  if (!number) return number.error();
  shown_ = 0;
  while (shown_ < followed_.size() && !followed_[shown_]->number.same_as(*number)) ++shown_;
  if (shown_ == followed_.size()) {
    followed_.push_back(std::make_unique<Followed>());
    followed_.back()->number = std::move(*number);
  }
  return ui.commands.run("panel.history");
}

Result<HistoryPanel::Followed*> HistoryPanel::shown() {
  if (shown_ < followed_.size()) return followed_[shown_].get();
  return usage_error("no number is followed", "right-click one, or choose a command history...");
}

void HistoryPanel::register_commands(Ui& ui) {
  Workbench& bench = ui.bench;
  for (int i = 0; i < kNumberKinds; ++i) {
    const auto kind = static_cast<NumberKind>(i);
    const NumberWords& words = number_words(kind);
    ui.commands.add({.id = fmt::format("history.{}", words.id),
                     .title = fmt::format("History of this number: {}", words.title),
                     .group = "View",
                     .help = fmt::format("{} From step to step.", words.help),
                     .run = [this, &ui, kind](std::string_view) { return follow(ui, kind); },
                     .enabled = [&bench] { return bench.op() != nullptr; },
                     .why_disabled = "the op under the cursor has no kept trace",
                     .in_menu = false});
  }
  const CommandGroup view(
      ui.commands, "View", [this] { return !followed_.empty(); }, "no number is followed");
  const auto number_at = [this](std::string_view value) -> Result<std::size_t> {
    if (followed_.empty()) return usage_error("no number is followed", "right-click one");
    const auto n = whole_value(value, "the number", 1, static_cast<std::int64_t>(followed_.size()));
    if (!n) return n.error();
    return static_cast<std::size_t>(*n - 1);
  };
  view.add(
      "history.show", "History: show ..", "Shows one of the numbers that are followed, from 1 on.",
      "",
      [this, &ui, number_at](std::string_view value) -> Result<void> {
        const auto at = number_at(value);
        if (!at) return at.error();
        shown_ = *at;
        return ui.commands.run("panel.history");
      },
      "NUMBER");
  view.add(
      "history.remove", "History: no longer follow ..", "The number is followed no longer.", "",
      [this, number_at](std::string_view value) -> Result<void> {
        const auto at = number_at(value);
        if (!at) return at.error();
        followed_.erase(followed_.begin() + static_cast<std::ptrdiff_t>(*at));
        if (shown_ > *at || shown_ == followed_.size()) shown_ -= shown_ > 0 ? 1 : 0;
        return {};
      },
      "NUMBER");
  ui.commands.add({.id = "history.run_again",
                   .title = "History: run steps again",
                   .group = "View",
                   .help = "Runs the steps whose tensors are gone again, beside the session, for "
                           "the number that is shown.",
                   .run = [this, &bench](std::string_view) -> Result<void> {
                     auto followed = shown();
                     if (!followed) return followed.error();
                     if (bench.snapshot() == nullptr) return usage_error("nothing is open", "");
                     const auto why = not_here(*bench.snapshot()->info, (*followed)->number);
                     if (!why.empty()) {
                       return usage_error(fmt::format("{} is not in what is open: {}",
                                                      (*followed)->number.words, why),
                                          "history.remove=NUMBER follows it no longer");
                     }
                     (*followed)->history.refresh(bench, (*followed)->number);
                     return (*followed)->history.run_again(bench);
                   },
                   .enabled = [this] { return !followed_.empty(); },
                   .why_disabled = "no number is followed",
                   .in_menu = false});
  ui.commands.add({.id = "history.stop",
                   .title = "History: stop running steps again",
                   .group = "View",
                   .help = "What was computed until then is kept.",
                   .run = [this](std::string_view) -> Result<void> {
                     auto followed = shown();
                     if (!followed) return followed.error();
                     (*followed)->history.stop();
                     return {};
                   },
                   .enabled =
                       [this] {
                         return shown_ < followed_.size() &&
                                followed_[shown_]->history.running_again().has_value();
                       },
                   .why_disabled = "no steps are running again",
                   .in_menu = false});
}

// Numbers stay when another scenario is opened: one that it has not is marked, and followed on
// where it is there again.
void HistoryPanel::look_who_is_here(const Snapshot& snapshot) {
  looked_in_ = snapshot.info;
  for (const auto& one : followed_) {
    one->not_here = not_here(*looked_in_, one->number);
    if (!one->not_here.empty()) one->history.stop();
  }
}

// Which number is shown, and a cross that ends following it.
void HistoryPanel::draw_numbers(Ui& ui) {
  const float gap = px(4),
              cross = ImGui::CalcTextSize(icon::kCross).x + 2 * ImGui::GetStyle().FramePadding.x;
  ImGui::SetNextItemWidth(
      std::clamp(ImGui::GetContentRegionAvail().x - cross - gap, px(80), px(420)));
  const auto words = [&](std::size_t i) {
    const Followed& one = *followed_[i];
    return one.number.words + (one.not_here.empty() ? "" : ": not here");
  };
  if (ImGui::BeginCombo("##number", words(shown_).c_str())) {
    for (std::size_t i = 0; i < followed_.size(); ++i) {
      const std::string label = fmt::format("{}##{}", words(i), i);
      if (ImGui::Selectable(label.c_str(), i == shown_)) {
        ui.run(fmt::format("history.show={}", i + 1));
      }
    }
    ImGui::EndCombo();
  }
  ImGui::SameLine(0, gap);
  const bool removed = ImGui::Button(fmt::format("{}##remove", icon::kCross).c_str());
  if (ImGui::IsItemHovered(ImGuiHoveredFlags_DelayShort)) tooltip("Follow it no longer.");
  if (removed) ui.run(fmt::format("history.remove={}", shown_ + 1));
}

// How steps whose tensors are gone come back, and how far they are.
void HistoryPanel::draw_again(Ui& ui) {
  const FollowedHistory& history = followed_[shown_]->history;
  if (const auto share = history.running_again()) {
    running_bar(ui, *share, "running again", "history.stop");
  } else if (history.missing() > 0 && ui.bench.capture() == nullptr) {
    command_button(ui, "history.run_again",
                   fmt::format("Run {} again", plural(history.missing(), "step", "steps")).c_str());
  }
}

void HistoryPanel::draw_table(Ui& ui, Followed& followed) {
  const NumberHistory& values = followed.history.values();
  const NumberWords& words = number_words(followed.number.kind);
  if (tabled_ != &followed || table_of_ != followed.history.version()) {
    tabled_ = &followed;
    table_of_ = followed.history.version();
    ++version_;
  }
  table_.begin(version_);
  if (table_.stale()) {
    std::vector<TableColumn> columns = {{"step", true, 0.5f}, {words.value, true, 1}};
    if (words.beside != nullptr) columns.push_back({words.beside, true, 1});
    columns.push_back({"what", false, 2.5f});
    table_.columns(std::move(columns));
    const auto cell = [](double v) -> TableCell {
      if (std::isnan(v)) return {""};
      return {format_number(v), 0, v, true, format_exact(v)};
    };
    for (const auto& [step, value] : values) {
      std::vector<TableCell> row = {whole_cell(step), cell(value.value)};
      if (words.beside != nullptr) row.push_back(cell(value.beside));
      row.push_back({value.what});
      table_.row(std::move(row), step);
    }
  }
  if (const auto step = table_.draw("##steps", {-1, -1}, ui.bench.cursor().step, false)) {
    ui.bench.go_to({*step, ui.bench.cursor().layer, ui.bench.cursor().op});
  }
}

void HistoryPanel::draw(Ui& ui) {
  reading_ = false;
  const Snapshot* snapshot = ui.bench.snapshot();
  if (snapshot == nullptr) {
    sentence("No session: open a scenario or a capture first.");
    return;
  }
  if (followed_.empty()) {
    empty_state(ui,
                "No number is followed. Right-click one in another panel and choose its history; "
                "or follow the time of the op that is shown.",
                "history.time");
    return;
  }
  if (looked_in_ != snapshot->info) look_who_is_here(*snapshot);
  Followed& followed = *followed_[shown_];
  if (!followed.not_here.empty()) {
    sentence(fmt::format("Not in what is open: {}. It is followed on where it is there again; the "
                         "cross ends that.",
                         followed.not_here),
             Verdict::kNotCompared);
    draw_numbers(ui);
    return;
  }
  followed.history.refresh(ui.bench, followed.number);
  reading_ = followed.history.reading();
  sentence(followed.history.sentence(ui.bench));
  draw_numbers(ui);
  if (shown_ >= followed_.size() || followed_[shown_].get() != &followed) return;
  draw_again(ui);
  if (followed.history.values().empty()) return;
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const bool table = room.y > px(240);
  const float height = table ? std::max(px(110), room.y * 0.6f) : std::max(px(80), room.y);
  if (plotted_ != &followed) plot_ = {};
  plotted_ = &followed;
  const auto step = plot_.draw(followed.history.values(), followed.history.version(),
                               followed.number.kind, ui.bench.cursor().step, {-1, height});
  if (step) ui.bench.go_to({*step, ui.bench.cursor().layer, ui.bench.cursor().op});
  if (table) draw_table(ui, followed);
}

}  // namespace

std::unique_ptr<Panel> make_history_panel() { return std::make_unique<HistoryPanel>(); }

}  // namespace attnscope::gui
