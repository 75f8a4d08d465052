// Two runs beside each other: a capture and what is shown, under one cursor. Verdict of every op,
// one token's values, its block tables, its window and selected entries.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "app/gui/command_group.h"
#include "app/gui/data_table.h"
#include "app/gui/heat_map.h"
#include "app/gui/pair_timeline.h"
#include "app/gui/text_input.h"
#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/panels/panels.h"
#include "app/text/format.h"
#include "app/views/budget.h"
#include "app/views/compare_view.h"
#include "app/views/pair_steps.h"
#include "app/workbench/capture_compare.h"
#include "engine/model/numbers.h"

namespace attnscope::gui {
namespace {

enum CompareTab { kOps, kValues, kTables, kLists, kSteps, kCompareTabCount };
constexpr const char* kCompareTabs[] = {"Ops", "Values", "Block tables", "Window and entries",
                                        "Steps"};
constexpr const char* kCompareTabIds[] = {"ops", "values", "tables", "lists", "steps"};
constexpr const char* kCompareTabIdList = "ops, values, tables, lists, steps";

// kUnknown of ops whose tensors are places of one run alone.
constexpr const char* kPlacement = "by its tables";

// Of a tap that is shown; empty where its tensors are not kept.
std::vector<TapAxis> axes_at(const Workbench& bench, const Place& place, const std::string& tap) {
  const StepTrace* step = bench.snapshot()->trace(place.step);
  const OpTrace* op = step == nullptr ? nullptr : step->find(place.layer, place.op);
  const TapCopy* copy = op == nullptr ? nullptr : op->tap(tap);
  return copy == nullptr ? std::vector<TapAxis>() : axes_of(*step, *op, *copy);
}

class ComparePanel : public Panel {
 public:
  ComparePanel() : Panel("compare", "Compare") {
    ops_.least_width = 860;
    steps_.least_width = 560;
  }
  bool scrolls() const override { return false; }
  bool animating() const override {
    return session_.running() || map_a_.busy() || map_b_.busy() || map_difference_.busy();
  }
  std::string failure() const override { return session_.error(); }
  void register_commands(Ui& ui) override;
  void draw(Ui& ui) override;

 private:
  void go(Ui& ui, const OpDiff* op, const char* none) const;
  void go_to_first(Ui& ui) const;
  void follow(Ui& ui);
  // The selected tap, or the op's first output.
  std::string tap_name() const {
    const bool known = std::ranges::find(taps_, tap_) != taps_.end();
    return known ? tap_ : taps_.empty() ? std::string() : taps_.front();
  }
  void draw_start(Ui& ui);
  void draw_buttons(Ui& ui);
  void draw_ops(Ui& ui);
  void draw_values(Ui& ui);
  void draw_tables(Ui& ui);
  void draw_lists(Ui& ui);
  void draw_steps(Ui& ui);
  void select_row(Ui& ui, int group, std::int32_t block, std::int32_t row) const;
  // Whether a row is shown: all are, or those that differ.
  bool shown(bool differs) const { return differs || !differences_; }
  void draw_map(const char* id, const std::string& title, HeatMap& map, const HeatMapData& data,
                ImVec2 size) const;

  CompareSession session_;
  std::uint64_t published_ = 0;  // version that the other panels know
  bool first_wanted_ = false;
  int tab_ = kOps;
  bool differences_ = false;  // alone are listed
  std::string typed_;
  // What is shown: of this comparison, cursor and token.
  std::uint64_t seen_ = 0, version_ = 0;
  Place place_{-1, -1, AS_OP_SCHEDULE};
  std::int32_t request_ = -2;
  std::int64_t position_ = -2;
  std::string tap_, problem_;
  ComparedToken token_;
  std::vector<std::string> taps_;
  std::vector<ComparedOp> ops_here_;
  ComparedLists lists_here_;
  ComparedValues values_;
  std::vector<ComparedBlock> blocks_here_;
  PairSteps steps_here_;
  std::uint64_t steps_of_ = 0;  // comparison that these are of
  PairTimeline timeline_;
  DataTable ops_, tables_, lists_, steps_;
  HeatMap map_a_, map_b_, map_difference_;
};

void ComparePanel::register_commands(Ui& ui) {
  const CommandGroup file(ui.commands, "File");
  file.add(
      "compare.open", "Compare with capture ..",
      "Lays a capture beside what is shown, a capture or the steps that the session keeps.", "",
      [this, &ui](std::string_view path) -> Result<void> {
        if (auto ok = session_.open(ui.bench, std::string(path)); !ok) return ok;
        return ui.commands.run("panel.compare");
      },
      "FOLDER");
  const CommandGroup compare(
      ui.commands, "Compare",
      [this] {
        return session_.result() != nullptr || session_.running() || !session_.error().empty();
      },
      "nothing is compared: compare.open=FOLDER");
  // What a comparison that was given up says is the answer to whoever asks for its result.
  const auto compared = [this]() -> Result<void> {
    if (session_.result() != nullptr || session_.running()) return {};
    return bad_input("nothing is compared: " + session_.error());
  };
  compare.add("compare.first", "Where they part",
              "Goes to the first op whose output differs beyond its tolerance.", "",
              [this, &ui, compared](std::string_view) -> Result<void> {
                if (auto ok = compared(); !ok) return ok;
                first_wanted_ = session_.running();  // then once it has been found
                if (!first_wanted_) go_to_first(ui);
                return {};
              });
  compare.add("compare.next", "Next difference",
              "Goes to the next op whose output differs beyond its tolerance.", "",
              [this, &ui, compared](std::string_view) -> Result<void> {
                if (auto ok = compared(); !ok) return ok;
                if (session_.running())
                  return usage_error("the comparison is running", "wait for it");
                go(ui, session_.result()->next(ui.bench.cursor()),
                   "No op behind this one differs beyond its tolerance.");
                return {};
              });
  compare.add("compare.close", "End the comparison",
              "Lets go of the second capture; stops a comparison that runs.", "",
              [this, &ui](std::string_view) -> Result<void> {
                session_.close();
                ui.bench.set_comparison(nullptr);
                return {};
              });
  compare.add(
      "compare.tab", "Compare: show ..", "What the split view shows.", "",
      [this](std::string_view value) -> Result<void> {
        for (int i = 0; i < kCompareTabCount; ++i) {
          if (value != kCompareTabIds[i]) continue;
          tab_ = i;
          return {};
        }
        return usage_error(fmt::format("compare.tab: there is no '{}'", value.substr(0, 40)),
                           std::string("allowed: ") + kCompareTabIdList);
      },
      kCompareTabIdList);
  compare.add_switch(
      "compare.differences", "Compare: differences alone",
      "Tables of blocks, lists and steps leave out what is the same in both.", "",
      [this](std::string_view) -> Result<void> {
        differences_ = !differences_;
        ++version_;
        return {};
      },
      [this] { return differences_; });
}

void ComparePanel::go_to_first(Ui& ui) const {
  const auto& first = session_.result()->diff.first;
  go(ui, first ? &first->op : nullptr, "No op's output differs beyond its tolerance.");
}

void ComparePanel::go(Ui& ui, const OpDiff* op, const char* none) const {
  if (op == nullptr) return ui.bench.say(Message::Kind::kInfo, none);
  ui.bench.go_to(op->a);
  const auto worst =
      std::ranges::find_if(op->taps, [](const TapDiff& t) { return t.output && !t.within; });
  if (worst == op->taps.end()) return;
  Selection selection = ui.bench.selection();
  selection.tap = worst->tap;
  selection.element.clear();
  // The token that differs most, at its worst element.
  if (const auto at = worst_place(*session_.result(), op->a, worst->tap)) {
    selection.request = at->request;
    selection.position = at->position;
    selection.element = at->index.vector();
    if (at->token_axis >= 0) {
      selection.element[static_cast<std::size_t>(at->token_axis)] = at->token_row;
    }
    const std::vector<TapAxis> axes = axes_at(ui.bench, op->a, worst->tap);
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const std::int64_t index = at->index[static_cast<int>(i)];
      if (axes[i].link == AxisLink::kHead) selection.head = static_cast<int>(index);
      if (axes[i].link == AxisLink::kDim) selection.dim = index;
    }
  }
  ui.bench.select(selection);
}

// Reads the traces of the cursor's token when it moved.
void ComparePanel::follow(Ui& ui) {
  const Place& place = ui.bench.cursor();
  const Selection& selection = ui.bench.selection();
  if (seen_ == session_.version() && place == place_ && selection.request == request_ &&
      selection.position == position_ && selection.tap == tap_) {
    return;
  }
  seen_ = session_.version();
  place_ = place;
  request_ = selection.request;
  position_ = selection.position;
  tap_ = selection.tap;
  ++version_;
  auto token = locate(*session_.result(), place.step, request_, position_);
  problem_ = token ? std::string() : token.error().text();
  token_ = token ? std::move(*token) : ComparedToken{};
  taps_ = compared_taps(token_, place_);
  values_ = compared_values(token_, place_, tap_name());
  ops_here_ = compared_ops(*session_.result(), token_);
  lists_here_ = compared_lists(*session_.result(), token_, place_.layer);
  blocks_here_ = compared_blocks(*session_.result(), token_);
  if (std::exchange(steps_of_, seen_) != seen_) steps_here_ = pair_steps(*session_.result());
}

void ComparePanel::draw_start(Ui& ui) {
  if (!session_.error().empty()) sentence(session_.error(), Verdict::kWrong);
  dim("Another run beside this one, token by token: type the folder of a capture, recorded with "
      "'attnscope record' or File, Record. Both are walked through with one cursor.");
  ImGui::SetNextItemWidth(std::max(px(120), ImGui::GetContentRegionAvail().x - px(110)));
  const bool entered =
      text_input("##folder", typed_, "run.acap", ImGuiInputTextFlags_EnterReturnsTrue);
  ImGui::SameLine();
  ImGui::BeginDisabled(typed_.empty());
  const bool pressed = ImGui::Button("Compare##open");
  ImGui::EndDisabled();
  if ((entered || pressed) && !typed_.empty()) ui.run("compare.open=" + typed_);
}

void ComparePanel::draw_buttons(Ui& ui) {
  command_button(ui, "compare.first");
  for (const char* id : {"compare.next", "compare.close"}) {
    same_line_for(button_width(ui.commands.find(id)->title.c_str()));
    command_button(ui, id);
  }
  if (ui.bench.capture() == nullptr) {
    constexpr const char* kAgain = "Compare again##compare";
    same_line_for(button_width(kAgain));
    if (ImGui::Button(kAgain)) ui.run("compare.open=" + session_.path());
    if (ImGui::IsItemHovered()) tooltip("With the steps that the session keeps now.");
  }
  const char* rows = differences_ ? "Differences alone" : "All rows";
  same_line_for(button_width(rows));
  command_button(ui, "compare.differences", rows);
  same_line_for(button_width(kCompareTabs[0]));
  int tab = tab_;
  if (segmented("tab", &tab, kCompareTabs, kCompareTabCount)) {
    ui.run(fmt::format("compare.tab={}", kCompareTabIds[tab]));
  }
}

void ComparePanel::draw(Ui& ui) {
  session_.poll();
  if (session_.running()) {
    sentence(
        fmt::format("Comparing with {}: {:.0f} %", session_.path(), 100 * session_.progress()));
    command_button(ui, "compare.close", "Stop");
    return;
  }
  if (published_ != session_.version()) {
    published_ = session_.version();
    ui.bench.set_comparison(session_.result());
  }
  if (!session_.result()) return draw_start(ui);
  if (std::exchange(first_wanted_, false)) go_to_first(ui);
  const RunPair& c = *session_.result();
  follow(ui);
  const bool parted = c.diff.first.has_value();
  sentence(c.sentence(), parted ? diff_look(c.diff.first->op.verdict).like : Verdict::kEqual);
  dim(fmt::format("first: {}  ·  second: {}", c.name_a, c.name_b));
  for (const StateDiff& state : c.diff.states) dim(state.what + ": " + state.text);
  if (!session_.error().empty()) sentence(session_.error(), Verdict::kWrong);
  draw_buttons(ui);
  if (!session_.result()) return;  // a button may just have ended it
  if (!problem_.empty()) return sentence(problem_, Verdict::kWrong);
  const OpDiff* here = c.find(place_);
  const DiffLook look = here != nullptr ? diff_look(here->verdict) : DiffLook{"", {}};
  const std::string words = compare_sentence(c, token_, place_);
  if (look.caution) {
    caution(words);
  } else {
    // Where they part the sentence above has told it already.
    const bool told = parted && c.diff.first->op.a == place_;
    const Verdict like = here != nullptr ? look.like : Verdict::kNotCompared;
    told ? sentence(words, like, 0) : sentence(words, like);
  }
  switch (tab_) {
    case kOps:
      return draw_ops(ui);
    case kValues:
      return draw_values(ui);
    case kTables:
      return draw_tables(ui);
    case kLists:
      return draw_lists(ui);
    default:
      return draw_steps(ui);
  }
}

void ComparePanel::draw_ops(Ui& ui) {
  const std::vector<ComparedOp>& rows = ops_here_;
  ops_.begin(version_);
  if (ops_.stale()) {
    ops_.columns({{"layer", true, 0.5f},
                  {"op", false, 2},
                  {"first", false, 1, "The lane that computed it in the first."},
                  {"second", false, 0.8f, "The lane that computed it in the second."},
                  {"verdict", false, 1.4f,
                   "Schedules and block tables are compared by what they mean: the lines above."},
                  {"tap", false, 0.7f, "The output that differs most."},
                  {"largest", true, 0.7f, "Largest absolute difference."},
                  {"of budget", true, 0.8f,
                   "Worst element in units of its tolerance; inf: a number beside none, or what "
                   "must be the same bits."},
                  {"evidence", false, 1.9f}});
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const ComparedOp& row = rows[i];
      DiffLook look = diff_look(row.verdict);
      if (as_op_has(row.place.op, AS_BY_ENGINE) != 0) {
        look = {kPlacement, Verdict::kNotCompared};
      }
      const TapDiff* tap = row.worst;
      ops_.row(
          {whole_cell(row.place.layer, "-"),
           {as_op_find(row.place.op)->name},
           {row.lane_a},
           {row.lane_b},
           {look.word, look.caution ? theme().warn : verdict_colour(look.like)},
           {tap != nullptr ? tap->tap : ""},
           tap != nullptr && !tap->by_checksum
               ? TableCell{format_error(tap->max_abs), 0, tap->max_abs, true}
               : TableCell{},
           tap != nullptr && tap->budget_used > 0
               ? TableCell{std::isinf(tap->budget_used) ? "inf" : budget_short({tap->budget_used}),
                           0, tap->budget_used, true}
               : TableCell{},
           {tap != nullptr ? tap->evidence : ""}},
          static_cast<std::int64_t>(i));
    }
  }
  const auto here = std::ranges::find(rows, place_, &ComparedOp::place);
  const std::int64_t selected = here == rows.end() ? -1 : here - rows.begin();
  if (const auto key = ops_.draw("##ops", {-1, -1}, selected)) {
    ui.bench.go_to(rows[static_cast<std::size_t>(*key)].place);
  }
}

void ComparePanel::draw_map(const char* id, const std::string& title, HeatMap& map,
                            const HeatMapData& data, ImVec2 size) const {
  ImGui::BeginGroup();
  ImGui::PushTextWrapPos(ImGui::GetCursorPosX() + size.x);
  dim(title);
  ImGui::PopTextWrapPos();
  size.y = std::max(px(40), size.y - ImGui::GetTextLineHeightWithSpacing());
  map.draw(id, data, size, values_.worst_row, values_.worst_column);
  ImGui::EndGroup();
}

void ComparePanel::draw_values(Ui& ui) {
  const std::string name = tap_name();
  ImGui::SetNextItemWidth(px(200));
  if (!taps_.empty() && ImGui::BeginCombo("##tap", name.c_str())) {
    for (const std::string& other : taps_) {
      if (!ImGui::Selectable(other.c_str(), other == name)) continue;
      Selection selection = ui.bench.selection();
      selection.tap = other;
      selection.element.clear();
      ui.bench.select(selection);
    }
    ImGui::EndCombo();
  }
  if (values_.rows == 0) return dim(values_.why);
  ImGui::SameLine();
  dim(values_.differing == 0
          ? fmt::format("{} of token {}: the same in both.", name, token_.position)
          : fmt::format("{} of token {}: {} of {} values differ, by {} at most.", name,
                        token_.position, values_.differing, values_.rows * values_.columns,
                        format_error(values_.largest)));
  HeatMapData data;
  data.rows = values_.rows;
  data.columns = values_.columns;
  data.absent = values_.absent;
  data.row_axis = values_.row_axis;
  data.column_axis = values_.column_axis;
  data.is_signed = values_.floats;
  data.version = version_;
  data.low = values_.low;  // the same colours on both sides
  data.high = values_.high;
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const float gap = ImGui::GetStyle().ItemSpacing.x;
  const ImVec2 half((room.x - gap) / 2, room.y * 0.5f);
  const RunPair& c = *session_.result();
  data.value = values_.a;
  draw_map("##a", fmt::format("first, step {}", token_.a->step), map_a_, data, half);
  if (ImGui::IsItemHovered()) tooltip(c.name_a);
  ImGui::SameLine();
  data.value = values_.b;
  draw_map("##b", fmt::format("second, step {}", token_.b->step), map_b_, data, half);
  if (ImGui::IsItemHovered()) tooltip(c.name_b);
  if (values_.differing == 0) return;
  data.is_signed = true;
  data.low = 0;
  data.high = -1;
  data.value = [a = values_.a, b = values_.b](std::int64_t row, std::int64_t column) {
    return a(row, column) - b(row, column);
  };
  const float rest = ImGui::GetContentRegionAvail().y;
  if (rest > px(60)) {
    draw_map("##difference", "first - second", map_difference_, data, {room.x, rest});
  }
}

// A click selects the block of the first, as everywhere.
void ComparePanel::draw_tables(Ui& ui) {
  sentence(compared_blocks_sentence(blocks_here_));
  const CacheLayout& layout = session_.result()->a->info()->layout;
  tables_.begin(version_);
  if (tables_.stale()) {
    tables_.columns({{"group", false, 1},
                     {"entry", true, 0.5f},
                     {"tokens", false, 1},
                     {"first", true, 0.7f, "Block of the first."},
                     {"second", true, 0.7f, "Block of the second."},
                     {"what", false, 2}});
    const auto block = [](std::int32_t id) {
      return id == 0 ? TableCell{"null", theme().text_dim, 0, true} : whole_cell(id, "no entry");
    };
    std::int64_t key = -1;
    for (const ComparedBlock& row : blocks_here_) {
      ++key;
      if (!shown(row.block_a != row.block_b)) continue;
      const char* what = row.differs                  ? "in one of them alone"
                         : row.block_a != row.block_b ? "another block for the same tokens"
                                                      : "";
      tables_.row({{layout.groups[static_cast<std::size_t>(row.group)].name},
                   whole_cell(row.entry),
                   {fmt::format("{}-{}", row.first, row.last)},
                   block(row.block_a),
                   block(row.block_b),
                   {what, row.differs ? theme().bad : 0}},
                  key);
    }
  }
  const Selection& selection = ui.bench.selection();
  const auto chosen = std::ranges::find_if(blocks_here_, [&](const ComparedBlock& row) {
    return row.block_a > 0 && row.block_a == selection.block && row.group == selection.group;
  });
  const std::int64_t selected = chosen == blocks_here_.end() ? -1 : chosen - blocks_here_.begin();
  const auto clicked = tables_.draw("##tables", {-1, -1}, selected);
  if (!clicked || blocks_here_[to_size(*clicked)].block_a <= 0) return;
  select_row(ui, blocks_here_[to_size(*clicked)].group, blocks_here_[to_size(*clicked)].block_a,
             -1);
}

void ComparePanel::select_row(Ui& ui, int group, std::int32_t block, std::int32_t row) const {
  Selection selection = ui.bench.selection();
  selection.group = group;
  selection.block = block;
  selection.row = row;
  ui.bench.select(selection);
}

// A click selects the row of the first; the token stays, whose lists these are.
void ComparePanel::draw_lists(Ui& ui) {
  const ComparedLists& lists = lists_here_;
  sentence(lists.sentence);
  lists_.begin(version_);
  if (lists_.stale()) {
    lists_.columns({{"list", false, 0.7f},
                    {"row", true, 0.6f, "Position in the window, or number of the entry."},
                    {"first", true, 0.8f, "Its slot in the first."},
                    {"second", true, 0.8f, "Its slot in the second."},
                    {"what", false, 2}});
    std::int64_t key = -1;
    for (const ComparedEntry& e : lists.entries) {
      ++key;
      const bool alone = (e.slot_a < 0) != (e.slot_b < 0);
      if (!shown(alone)) continue;
      lists_.row({{e.window ? "window" : "entry"},
                  whole_cell(e.row, "?"),
                  whole_cell(e.slot_a, "not read"),
                  whole_cell(e.slot_b, "not read"),
                  {alone ? e.slot_a < 0 ? "in the second alone" : "in the first alone" : "",
                   alone ? theme().bad : 0}},
                 key);
    }
  }
  if (lists.entries.empty()) return;
  const Selection& selection = ui.bench.selection();
  const auto chosen = std::ranges::find_if(lists.entries, [&](const ComparedEntry& e) {
    return e.block > 0 && e.block == selection.block && e.row_in_block == selection.row &&
           e.group == selection.group;
  });
  const std::int64_t selected = chosen == lists.entries.end() ? -1 : chosen - lists.entries.begin();
  const auto clicked = lists_.draw("##lists", {-1, -1}, selected);
  if (!clicked) return;
  const ComparedEntry& e = lists.entries[to_size(*clicked)];
  if (e.block > 0) select_row(ui, e.group, e.block, e.row_in_block);
}

// Both timelines, and what was scheduled in each step.
void ComparePanel::draw_steps(Ui& ui) {
  sentence(steps_here_.sentence);
  dim("A bar is a step, as high as its ops took, in the colour of its worst verdict; red below it: "
      "an op's output parts there.");
  const float high = std::clamp(ImGui::GetContentRegionAvail().y * 0.4f, px(64), px(150));
  const std::int64_t second = token_.b ? token_.b->step : -1;
  const PairTimelineEvents events =
      timeline_.draw(*session_.result(), steps_here_, {place_.step, second},
                     ImGui::GetContentRegionAvail().x, high);
  std::int64_t wanted = events.first;
  if (events.second >= 0) {
    wanted = step_in_first(*session_.result(), events.second);
    if (wanted < 0) {
      ui.bench.say(Message::Kind::kInfo,
                   fmt::format("No token of step {} of the second was computed in the first.",
                               events.second));
    }
  }
  if (wanted >= 0) ui.bench.go_to({wanted, place_.layer, place_.op});
  steps_.begin(version_);
  if (steps_.stale()) {
    steps_.columns({{"step", true, 0.5f},
                    {"tokens, first", true, 0.7f},
                    {"second", true, 0.6f},
                    {"blocks, first", true, 0.7f, "Held by requests."},
                    {"second", true, 0.6f, "Held by requests."},
                    {"time, first", true, 0.8f, "Of its ops, in milliseconds."},
                    {"second", true, 0.7f, "Of its ops, in milliseconds."},
                    {"what", false, 2.5f}});
    const auto count = [](const StepSummary* s, std::int64_t n) {
      return s == nullptr ? TableCell{} : whole_cell(n);
    };
    const auto time = [](const StepSummary* s) {
      return s == nullptr ? TableCell{}
                          : TableCell{fmt::format("{:.3g}", s->seconds * 1e3), 0, s->seconds, true};
    };
    for (const PairStep& row : steps_here_.steps) {
      if (!shown(!row.what.empty())) continue;
      const StepSummary *a = row.a.get(), *b = row.b.get();
      steps_.row({whole_cell(row.step),
                  count(a, a != nullptr ? a->tokens : 0),
                  count(b, b != nullptr ? b->tokens : 0),
                  count(a, a != nullptr ? a->usage.held : 0),
                  count(b, b != nullptr ? b->usage.held : 0),
                  time(a),
                  time(b),
                  {row.what, row.what.empty() ? 0 : theme().warn}},
                 row.step);
    }
  }
  if (const auto step = steps_.draw("##steps", {-1, -1}, place_.step)) {
    ui.bench.go_to({*step, place_.layer, place_.op});
  }
}

}  // namespace

std::unique_ptr<Panel> make_compare_panel() { return std::make_unique<ComparePanel>(); }

}  // namespace attnscope::gui
