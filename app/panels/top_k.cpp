// Top-k: what the indexer chose for the selected token, why, and what it changed since the step
// before.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "app/gui/data_table.h"
#include "app/gui/legend_row.h"
#include "app/gui/mass_map.h"
#include "app/gui/score_plot.h"
#include "app/gui/tables_state.h"
#include "app/gui/theme.h"
#include "app/gui/top_k_steps.h"
#include "app/gui/widgets.h"
#include "app/panels/panels.h"
#include "app/text/format.h"
#include "app/views/linkage.h"
#include "app/views/op_order.h"
#include "app/views/top_k_view.h"
#include "app/workbench/missing_ops.h"
#include "engine/model/numbers.h"
#include "engine/trace/tolerances.h"

namespace attnscope::gui {
namespace {

constexpr std::int64_t kTableEntries = 4096;  // the table shows the best ones beyond it
constexpr float kTableHeight = 84;
constexpr float kNarrowTable = 520;
constexpr float kBesideWidth = 820;  // from here on the steps stand beside this step
constexpr const char* kOrders[] = {"By entry", "By rank", "Threshold"};
constexpr const char* kOrderNames[] = {"entry", "rank", "threshold"};
constexpr const char* kViewTabs[] = {"This step", "Steps"};

TableCell count_cell(std::int64_t value) {
  return {format_count(value), 0, static_cast<double>(value), true, std::to_string(value)};
}

TableCell value_cell(double value) {
  if (std::isnan(value)) return {};
  return {format_number(value), 0, value, true, format_exact(value)};
}

class TopKPanel : public Panel {
 public:
  TopKPanel() : Panel("top_k", "Top-k") {}

  void register_commands(Ui& ui) override;
  void draw(Ui& ui) override;
  bool animating() const override { return reading_ || mass_.busy(); }

 private:
  // What the view was made from. The snapshot keeps the ops alive, so that equal pointers mean
  // equal data.
  struct Key {
    const OpTrace *logits = nullptr, *topk = nullptr, *attention = nullptr, *before = nullptr;
    int layer = -1, head = 0;
    std::int64_t row = -1, step = -1;
    friend bool operator==(const Key&, const Key&) = default;
  };

  void refresh(const Ui& ui, const StepTrace& step);
  void draw_switches();
  void draw_step(Ui& ui, const StepTrace& step);
  void fill_table(const Ui& ui, const StepTrace& step, bool narrow);
  void draw_steps(Ui& ui, bool alone);
  void select_entry(Workbench& bench, const StepTrace& step, std::int64_t entry) const;
  void move_entry(Workbench& bench, int by);
  std::string describe(const Ui& ui, const StepTrace& step, std::int64_t entry,
                       const char* between) const;

  Tolerance tolerance_;
  bool tolerance_known_ = false;
  int tab_ = 0, order_ = 0;
  Key key_;
  std::shared_ptr<const Snapshot> held_;
  std::uint64_t version_ = 0;  // of view_
  TopKLayer layer_;
  TopKView view_;
  ScorePlot plot_;
  DataTable table_;
  TopKSteps steps_;
  MassMap mass_;          // of a model that selects nothing
  bool reading_ = false;  // there is more of a capture for steps_
};

void TopKPanel::register_commands(Ui& ui) {
  ui.commands.add({.id = "top_k.order",
                   .title = "Order of scores ..",
                   .group = "Selection",
                   .help = "Shows the indexer's scores by entry, by rank, or around the threshold.",
                   .shortcut = {},
                   .argument = "entry, rank or threshold",
                   .run = [this](std::string_view value) -> Result<void> {
                     for (int i = 0; i < 3; ++i) {
                       if (value == kOrderNames[i]) {
                         order_ = i;
                         tab_ = 0;
                         return {};
                       }
                     }
                     return usage_error(fmt::format("top_k.order: '{}' is no order", value),
                                        "allowed: entry, rank, threshold");
                   }});
  ui.commands.add({.id = "top_k.steps",
                   .title = "Selection from step to step",
                   .group = "Selection",
                   .help = "Switches the top-k panel between this step and all kept steps.",
                   .shortcut = {},
                   .argument = {},
                   .run = [this](std::string_view) -> Result<void> {
                     tab_ = 1 - tab_;
                     return {};
                   },
                   .checked = [this] { return tab_ == 1; }});
  const auto add_move = [&](const char* id, const char* title, const char* help,
                            const char* shortcut, int by) {
    ui.commands.add({.id = id,
                     .title = title,
                     .group = "Selection",
                     .help = help,
                     .shortcut = shortcut,
                     .argument = {},
                     .run = [this, &bench = ui.bench, by](std::string_view) -> Result<void> {
                       move_entry(bench, by);
                       return {};
                     },
                     .enabled = [this] { return view_.visible > 0; },
                     .why_disabled = "the selected token sees no entry to select from here"});
  };
  add_move("top_k.next_entry", "Next entry", "Selects the next entry, in the order shown.", "E", 1);
  add_move("top_k.previous_entry", "Previous entry",
           "Selects the previous entry, in the order shown.", "Shift+E", -1);
}

void TopKPanel::refresh(const Ui& ui, const StepTrace& step) {
  const SessionInfo& info = *ui.bench.snapshot()->info;
  const auto select = op_of_role(info, AS_ROLE_SELECT);
  if (!tolerance_known_ && select) {
    tolerance_known_ = true;
    if (auto all = Tolerances::load()) {
      if (auto found = all->find(*select, "indices", "cpu", "topk")) tolerance_ = *found;
    } else {
      ui.bench.say(Message::Kind::kError, all.error().text());
    }
  }
  const StepTrace* before = ui.bench.step_before();
  const std::int64_t row = ui.bench.selected_row();
  layer_ = top_k_layer(info, ui.bench.cursor(), ui.bench.selected_position());
  Key key;
  key.layer = layer_.layer;
  key.head = ui.bench.selection().head;
  key.row = row;
  key.step = step.step;
  key.logits = step.find_role(key.layer, AS_ROLE_SCORE);
  key.topk = step.find_role(key.layer, AS_ROLE_SELECT);
  key.attention = step.find_role(key.layer, AS_ROLE_ATTENTION);
  key.before = before ? before->find_role(key.layer, AS_ROLE_SELECT) : nullptr;
  const bool other_run = held_ == nullptr || held_->info != ui.bench.snapshot()->info;
  held_ = ui.bench.shared_snapshot();
  if (!other_run && key == key_ && version_ > 0) return;
  key_ = key;
  // Another scenario's scores have another range.
  if (other_run) plot_.fit_again();
  view_ = top_k_view({info, step, before, key.layer, row, key.head, tolerance_});
  ++version_;
}

void TopKPanel::select_entry(Workbench& bench, const StepTrace& step, std::int64_t entry) const {
  Selection selection = bench.selection();
  selection.pick_entry(view_.request, view_.ratio, entry);
  if (const RequestView* request = find_request(step, view_.request)) {
    const TokenSlot slot = slot_of_entry(*bench.snapshot()->info, *request, view_.ratio, entry);
    if (slot.block > 0) {
      selection.block = slot.block;
      selection.row = slot.row;
      selection.group = slot.group;
    }
  }
  bench.select(selection);
}

void TopKPanel::move_entry(Workbench& bench, int by) {
  const StepTrace* step = bench.step();
  if (!step || view_.visible == 0) return;
  const bool by_rank = order_ != 0;
  const std::int64_t now = bench.selection().entry_of(view_.request, view_.ratio);
  std::int64_t place = by > 0 ? -1 : view_.visible;
  if (now >= 0 && now < view_.visible) place = by_rank ? view_.rank[to_size(now)] : now;
  place = std::clamp<std::int64_t>(place + by, 0, view_.visible - 1);
  select_entry(bench, *step, by_rank ? view_.order[to_size(place)] : place);
}

// All that is known of an entry; between: facts.
std::string TopKPanel::describe(const Ui& ui, const StepTrace& step, std::int64_t entry,
                                const char* between) const {
  const std::size_t e = to_size(entry);
  const TokenRange tokens = tokens_of_entry(ui.bench.snapshot()->info->layout, view_.ratio, entry);
  const RequestView* request = find_request(step, view_.request);
  std::string text = fmt::format("entry {}: tokens {}-{}", format_count(entry),
                                 format_count(tokens.begin), format_count(tokens.end - 1));
  if (request) text += fmt::format(" \"{}\"", text_of(request->request, tokens, 24));
  text += fmt::format("{}score {}", between, format_number(view_.scores[e]));
  if (!view_.reference_scores.empty()) {
    text += fmt::format(" (reference {})", format_number(view_.reference_scores[e]));
  }
  text += fmt::format("{}rank {} of {}", between, format_count(view_.rank[e] + 1),
                      format_count(view_.visible));
  const std::uint8_t flags = view_.flags[e];
  if (view_.chosen) {
    text += flags & kInOurs ? ", selected" : ", not selected";
    if (!view_.only_ours.empty() || !view_.only_reference.empty()) {
      const std::uint8_t sides = flags & (kInOurs | kInReference);
      if (sides == kInOurs) text += " (the reference leaves it out)";
      if (sides == kInReference) text += " (the reference selects it)";
    }
    if (view_.has_before && !(flags & kInOurs) != !(flags & kInBefore)) {
      text += flags & kInOurs ? ", new since one step ago" : ", but was one step ago";
    }
  }
  if (request) {
    const TokenSlot slot = slot_of_entry(*ui.bench.snapshot()->info, *request, view_.ratio, entry);
    if (slot.block > 0) text += fmt::format("{}block {} row {}", between, slot.block, slot.row);
  }
  if (!view_.weights.empty() && !std::isnan(view_.weights[e])) {
    text +=
        fmt::format("{}weight {} of head {}", between, format_number(view_.weights[e]), key_.head);
  }
  return text;
}

void TopKPanel::draw_switches() {
  segmented("##tab", &tab_, kViewTabs, 2);
  if (tab_ == 0 && view_.why_empty.empty()) {
    ImGui::SameLine(0, px(16));
    segmented("##order", &order_, kOrders, 3);
  }
}

void TopKPanel::draw(Ui& ui) {
  reading_ = false;
  const Snapshot* snapshot = ui.bench.snapshot();
  if (!snapshot) {
    empty_state(ui, "No session yet: its first picture has not arrived.");
    return;
  }
  const StepTrace* step = ui.bench.step();
  if (!step) {
    const std::string missing =
        missing_ops(ui.bench, ui.bench.cursor().layer, {AS_ROLE_SELECT, AS_ROLE_ATTENTION});
    if (!missing.empty()) return empty_state(ui, missing, "", CaptureLevel::kSummary);
    empty_state(ui, no_trace(ui.bench, "nothing has been selected"), "step.forward");
    return;
  }
  refresh(ui, *step);
  if (layer_.layer < 0) {
    mass_.draw(ui, *step);
    return;
  }
  if (tab_ == 1) {
    draw_steps(ui, true);
    return;
  }
  if (!view_.why_empty.empty()) {
    const std::string missing =
        missing_ops(ui.bench, layer_.layer, {AS_ROLE_SELECT, AS_ROLE_ATTENTION});
    if (!missing.empty()) return empty_state(ui, missing, "", CaptureLevel::kSummary);
    empty_state(ui, view_.why_empty, "op.forward", CaptureLevel::kSummary);
    return;
  }
  sentence(top_k_sentence(view_), view_.verdict);
  if (!layer_.note.empty()) {
    dim(layer_.note);
  }
  draw_switches();
  const StepSummary* summary = ui.bench.summary();
  if (view_.chosen && !view_.choosing() && summary && !summary->selective) {
    command_button(ui, "run.until_selective");
  }
  const ImVec2 space = ImGui::GetContentRegionAvail();
  if (space.x < px(kBesideWidth) || space.y < px(260)) {
    draw_step(ui, *step);
    return;
  }
  // Room for both: this step at the left, all kept steps beside it.
  const float left = space.x * 0.6f;
  if (ImGui::BeginChild("##this", {left, 0})) draw_step(ui, *step);
  ImGui::EndChild();
  ImGui::SameLine();
  if (ImGui::BeginChild("##all")) draw_steps(ui, false);
  ImGui::EndChild();
}

void TopKPanel::draw_step(Ui& ui, const StepTrace& step) {
  if (view_.visible == 0) return;
  LegendRow row;
  row.swatch(theme().compressed_part, "selected");
  row.swatch(theme().text_dim, "not selected");
  const auto left = static_cast<std::int64_t>(view_.left.size());
  if (view_.has_before && view_.entered + left > 0) {
    row.swatch(theme().text, format_count(view_.entered) + " entered");
    row.outlined(format_count(left) + " left");
  }
  if (view_.swapped() > 0) {
    row.swatch(view_.verdict == Verdict::kNearTie ? theme().tie : theme().bad,
               "ours / reference's alone");
  }
  const std::int64_t selected = ui.bench.selection().entry_of(view_.request, view_.ratio);
  const bool details = selected >= 0 && selected < view_.visible;
  const std::string text = details ? describe(ui, step, selected, " · ") : std::string();
  const ImVec2 space = ImGui::GetContentRegionAvail();
  const float below = details ? ImGui::CalcTextSize(text.c_str(), nullptr, false, space.x).y : 0;
  const float plot_height =
      std::max(px(90), std::min((space.y - below) * (space.y > px(420) ? 0.5f : 0.6f),
                                space.y - below - px(kTableHeight) - px(16)));
  const ScorePlotEvents events = plot_.draw(
      "##scores", view_, version_, static_cast<ScoreOrder>(order_), selected, {-1, plot_height});
  if (events.hovered >= 0) tooltip(describe(ui, step, events.hovered, "\n"));
  if (events.clicked >= 0) select_entry(ui.bench, step, events.clicked);
  if (details) {
    ImGui::PushStyleColor(ImGuiCol_Text, theme().accent);
    ImGui::TextWrapped("%s", text.c_str());
    ImGui::PopStyleColor();
  }
  if (view_.visible > kTableEntries) {
    ImGui::TextDisabled("Table: the %s best of %s entries.", format_count(kTableEntries).c_str(),
                        format_count(view_.visible).c_str());
  }
  const ImVec2 rest = ImGui::GetContentRegionAvail();
  const bool narrow = rest.x < px(kNarrowTable);
  fill_table(ui, step, narrow);
  // Two sets of columns are two tables to ImGui, which keeps their order and widths.
  const ImVec2 table{-1, std::max(px(60), rest.y - ImGui::GetFrameHeightWithSpacing())};
  if (const auto key =
          table_.draw(narrow ? "##narrow" : "##entries", table, selected, rest.y > px(140))) {
    select_entry(ui.bench, step, *key);
  }
}

// narrow: without the columns that the plot, the sentence and the selection say too.
void TopKPanel::fill_table(const Ui& ui, const StepTrace& step, bool narrow) {
  table_.begin(version_ * 2 + (narrow ? 1 : 0));
  if (!table_.stale()) return;
  const bool compared = !view_.reference_scores.empty() && !narrow;
  const bool changes = view_.has_before && !narrow;
  std::vector<TableColumn> columns = {
      {"entry", true, 0.65f, "Compressed entry of the request, 0-based."},
      {"tokens", true, 1.1f, "Positions pooled into the entry (they overlap with the one before)."},
      {"score", true, 1.15f, "The indexer's score."}};
  if (!narrow) columns.insert(columns.end() - 1, {"text", false, 0.95f, "Their text."});
  if (compared) columns.push_back({"reference", true, 1.25f, "The reference's score."});
  columns.push_back({"rank", true, 0.7f, "Place by score, 1 = best."});
  columns.push_back({"set", false, 1.15f, "Whether the entry is selected, and by whom."});
  if (changes) columns.push_back({"change", false, 1.1f, "Against one step ago."});
  if (!narrow) columns.push_back({"slot", true, 0.8f, "block:row of the entry."});
  columns.push_back(
      {"weight", true, 1.25f, fmt::format("Attention weight that head {} gave to it.", key_.head)});
  table_.columns(std::move(columns));
  table_.least_width = narrow ? 380 : 680;

  const SessionInfo& info = *ui.bench.snapshot()->info;
  const RequestView* request = find_request(step, view_.request);
  const auto add = [&](std::int64_t entry) {
    const std::size_t e = to_size(entry);
    const TokenRange tokens = tokens_of_entry(info.layout, view_.ratio, entry);
    std::vector<TableCell> cells;
    cells.push_back(count_cell(entry));
    cells.push_back({fmt::format("{}-{}", tokens.begin, tokens.end - 1), 0,
                     static_cast<double>(tokens.begin), true});
    if (!narrow) cells.push_back({request ? text_of(request->request, tokens, 16) : std::string()});
    cells.push_back(value_cell(view_.scores[e]));
    if (compared) cells.push_back(value_cell(view_.reference_scores[e]));
    cells.push_back(count_cell(view_.rank[e] + 1));
    const std::uint8_t flags = view_.flags[e];
    TableCell set{flags & kInOurs ? "selected" : ""};
    for (const auto* swaps : {&view_.only_ours, &view_.only_reference}) {
      for (const TopKSwap& swap : *swaps) {
        if (swap.entry != entry) continue;
        set.text = swaps == &view_.only_ours ? "only ours" : "only reference";
        set.colour = swap.near_tie ? theme().tie : theme().bad;
        set.exact = fmt::format("{}, margin {}", set.text, format_exact(swap.margin));
      }
    }
    cells.push_back(std::move(set));
    if (changes) {
      const bool now = flags & kInOurs, then = flags & kInBefore;
      cells.push_back({now == then ? "" : now ? "entered" : "left"});
    }
    if (!narrow) {
      const TokenSlot slot =
          request ? slot_of_entry(info, *request, view_.ratio, entry) : TokenSlot{};
      cells.push_back(slot.block > 0 ? TableCell{fmt::format("{}:{}", slot.block, slot.row), 0,
                                                 static_cast<double>(slot.slot), true}
                                     : TableCell{});
    }
    cells.push_back(view_.weights.empty() ? TableCell{} : value_cell(view_.weights[e]));
    table_.row(std::move(cells), entry);
  };
  if (view_.visible <= kTableEntries) {
    for (std::int64_t e = 0; e < view_.visible; ++e) add(e);
    return;
  }
  for (std::int64_t r = 0; r < kTableEntries; ++r) add(view_.order[to_size(r)]);
  for (const auto* swaps : {&view_.only_ours, &view_.only_reference}) {
    for (const TopKSwap& swap : *swaps) {
      if (view_.rank[to_size(swap.entry)] >= kTableEntries) add(swap.entry);
    }
  }
}

// alone: the whole panel, else a part of it without switches and table.
void TopKPanel::draw_steps(Ui& ui, bool alone) {
  steps_.refresh(ui.bench, layer_.layer, ui.bench.selected_request(), tolerance_);
  reading_ = steps_.reading();
  sentence(steps_.sentence());
  if (alone) draw_switches();
  if (steps_.steps().empty()) return;
  if (const auto step = steps_.draw(ui.bench.cursor().step, alone)) {
    const auto select = op_of_role(*ui.bench.snapshot()->info, AS_ROLE_SELECT);
    if (select) ui.bench.go_to({*step, layer_.layer, *select});
  }
}

}  // namespace

std::unique_ptr<Panel> make_top_k_panel() { return std::make_unique<TopKPanel>(); }

}  // namespace attnscope::gui
