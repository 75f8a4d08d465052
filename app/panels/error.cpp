// Error: per op what it introduced, inherited and lost to its formats, and the budget it used; the
// results of the op under the cursor, and its worst element down to the bytes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "app/gui/colour.h"
#include "app/gui/data_table.h"
#include "app/gui/tables_state.h"
#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/panels/panels.h"
#include "app/reports/causes_run.h"
#include "app/text/format.h"
#include "app/views/bytes_view.h"
#include "app/views/error_view.h"
#include "app/views/pattern_view.h"
#include "app/views/tensor_view.h"
#include "app/views/worst_element.h"
#include "engine/model/numbers.h"

namespace attnscope::gui {
namespace {

constexpr const char* kScopes[] = {"this layer", "all layers", "all steps"};
constexpr std::array<const char*, 3> kScopeNames = {"layer", "step", "run"};
constexpr std::array<const char*, 3> kFigureNames = {"abs", "rel", "cosine"};
constexpr double kSmallestError = 1e-12;  // left end of the log axis at most

ImU32 kind_colour(ErrorKind kind, Verdict verdict) {
  switch (kind) {
    case ErrorKind::kIntroduced:
      return verdict_colour(verdict);
    case ErrorKind::kInherited:
      return theme().text_dim;
    case ErrorKind::kQuantisation:
      return theme().text_faint;
  }
  return theme().text_dim;
}

class ErrorPanel : public Panel {
 public:
  ErrorPanel() : Panel("error", "Error") {}
  void register_commands(Ui& ui) override;
  void draw(Ui& ui) override;

 private:
  // Log axis of the bars.
  struct Axis {
    int low = -6, high = 0;  // powers of ten
    float unit(double value) const {
      const double decades = std::max(1, high - low);
      return static_cast<float>(
          std::clamp((std::log10(std::max(value, kSmallestError)) - low) / decades, 0.02, 1.0));
    }
  };

  void refresh(const Ui& ui, const StepSummary& summary);
  const std::string& words(const Ui& ui, const StepSummary& summary);
  const ShownResult& shown_of(const StepTrace& step, const OpTrace& op, const TapResult& result);
  static const TapResult* chosen_result(const Selection& selection, const OpTrace& op);
  void draw_legend() const;
  void draw_bars(Ui& ui, float height);
  static float row_height() { return std::max(px(17), ImGui::GetTextLineHeight() + px(2)); }
  void draw_axis(ImVec2 min, ImVec2 max) const;
  void draw_row(const OpError& row, ImVec2 bars_min, ImVec2 bars_max, ImVec2 budget_min,
                ImVec2 budget_max) const;
  std::string row_name(const OpError& row) const;
  std::string row_tip(const OpError& row) const;
  void fill_results(const OpTrace& op);
  void draw_results(Ui& ui, const OpTrace& op);
  void draw_pattern(const Ui& ui, const StepTrace& step, const OpTrace& op,
                    const TapResult& result);
  static void draw_causes(Ui& ui, const OpTrace& op);
  void draw_worst(Ui& ui, const StepTrace& step, const OpTrace& op, const TapResult& compared);
  void draw_cached(const Ui& ui, const OpTrace& op, const TapResult& result) const;
  Result<void> show_difference(Workbench& bench, CommandRegistry& commands) const;

  int scope_ = 0, figure_ = 0;
  Place scrolled_to_{-1, -1, AS_OP_SCHEDULE};  // cursor that the bars last showed
  int scrolled_scope_ = -1;
  std::shared_ptr<const Snapshot> held_;
  const StepSummary* summary_ = nullptr;  // rows_ are of it
  int layer_ = -1, shown_scope_ = -1;
  RunErrors run_;
  std::vector<OpError> rows_;
  Axis axis_;
  int axis_figure_ = -1;
  DataTable results_;
  const OpTrace* results_op_ = nullptr;
  Place results_place_;
  bool narrow_ = false;
  std::uint64_t results_version_ = 0;
  // The sentence, and what it was made of; the snapshot keeps the ops alive.
  struct Said {
    std::shared_ptr<const Snapshot> snapshot;
    Place cursor{-1, -1, AS_OP_SCHEDULE};
    friend bool operator==(const Said&, const Said&) = default;
  };
  Said said_;
  std::string sentence_;
  std::map<const TapResult*, ShownResult> shown_;                   // of the op under the cursor
  std::map<const TapResult*, std::vector<ErrorFinding>> patterns_;  // likewise
};

void ErrorPanel::register_commands(Ui& ui) {
  const auto add = [&](const char* id, const char* title, const char* help, int* target,
                       const std::array<const char*, 3>& names, const char* argument) {
    ui.commands.add({.id = id,
                     .title = title,
                     .group = "View",
                     .help = help,
                     .shortcut = "",
                     .argument = argument,
                     .run = [target, names, id](std::string_view value) -> Result<void> {
                       for (std::size_t i = 0; i < names.size(); ++i) {
                         if (value != names[i]) continue;
                         *target = static_cast<int>(i);
                         return {};
                       }
                       return usage_error(
                           fmt::format("{}: unknown value '{}'", id, value),
                           fmt::format("allowed: {}, {}, {}", names[0], names[1], names[2]));
                     },
                     .in_menu = false});
  };
  add("error.scope", "Error: of ..", "Which ops the error panel shows.", &scope_, kScopeNames,
      "layer|step|run");
  add("error.figure", "Error: measured as ..", "Which figure its bars show.", &figure_,
      kFigureNames, "abs|rel|cosine");
  Workbench& bench = ui.bench;
  CommandRegistry& commands = ui.commands;
  commands.add({.id = "error.show_difference",
                .title = "Show the difference",
                .group = "Selection",
                .help = "Opens the tensor panel at the worst element of the op under the cursor.",
                .shortcut = "",
                .argument = "",
                .run = [this, &bench,
                        &commands](std::string_view) { return show_difference(bench, commands); },
                .enabled = [&bench] { return bench.op() && !bench.op()->results.empty(); },
                .why_disabled = "no tap of the op under the cursor was compared"});
  commands.add({.id = "error.causes",
                .title = "Which mistake gives this?",
                .group = "Why",
                .help =
                    "Runs the op under the cursor with each well-known mistake in it, beside the "
                    "session, and names those that give the same output; Escape stops it.",
                .shortcut = "",
                .argument = "",
                .run = [&ui](std::string_view) -> Result<void> {
                  if (auto ok = ui.bench.ask_causes(); !ok) return ok;
                  return ui.commands.run("panel.error");
                },
                .enabled = [&bench] { return bench.op() && bench.op()->worst == Verdict::kWrong; },
                .why_disabled = "the op under the cursor is not wrong"});
}

// The selected tap's result, else the one that used most of its budget.
const TapResult* ErrorPanel::chosen_result(const Selection& selection, const OpTrace& op) {
  if (const TapResult* chosen = op.result(selection.tap)) return chosen;
  const TapResult* worst = nullptr;
  for (const TapResult& result : op.results) {
    const bool wrong = result.verdict == Verdict::kWrong;
    if (worst == nullptr || (wrong && worst->verdict != Verdict::kWrong) ||
        (wrong == (worst->verdict == Verdict::kWrong) && result.budget_used > worst->budget_used)) {
      worst = &result;
    }
  }
  return worst;
}

Result<void> ErrorPanel::show_difference(Workbench& bench, CommandRegistry& commands) const {
  const OpTrace& op = *bench.op();
  const StepTrace& step = *bench.step();
  const TapResult* result = chosen_result(bench.selection(), op);
  if (result != nullptr) bench.select(worst_selection(step, op, *result, bench.selection()));
  const bool is_rows = result != nullptr && op.cache_rows(result->tap) != nullptr;
  if (is_rows) return commands.run("panel.bytes");
  if (auto ok = commands.run("tensor.view=difference"); !ok) return ok;
  if (auto ok = commands.run("tensor.as=heat"); !ok) return ok;
  return commands.run("panel.tensor");
}

void ErrorPanel::refresh(const Ui& ui, const StepSummary& summary) {
  const int layer = ui.bench.cursor().layer;
  const bool same_picture = held_ == ui.bench.shared_snapshot();
  const bool same =
      same_picture && summary_ == &summary && layer == layer_ && scope_ == shown_scope_;
  if (same && figure_ == axis_figure_) return;
  if (!same) {
    held_ = ui.bench.shared_snapshot();
    summary_ = &summary;
    layer_ = layer;
    shown_scope_ = scope_;
    if (scope_ == 2) {
      run_.update(*held_);
      rows_ = run_.rows();
    } else {
      rows_ = op_errors(summary.results, scope_ == 0 ? layer : kAllLayers);
    }
  }
  axis_figure_ = figure_;
  double low = 1, high = kSmallestError;
  for (const OpError& row : rows_) {
    for (const auto& kind : row.errors) {
      const auto& value = kind[to_size(figure_)];
      if (!value || !std::isfinite(*value) || *value <= kSmallestError) continue;
      low = std::min(low, *value);
      high = std::max(high, *value);
    }
  }
  axis_ = {};
  if (high > kSmallestError) {
    axis_.low = static_cast<int>(std::floor(std::log10(low)));
    axis_.high = std::max(axis_.low + 1, static_cast<int>(std::ceil(std::log10(high))));
  }
}

// Worked out once an op: where rows are missing the kept ones are compared again.
const std::string& ErrorPanel::words(const Ui& ui, const StepSummary& summary) {
  const Said now{ui.bench.shared_snapshot(), ui.bench.cursor()};
  if (now == said_) return sentence_;
  said_ = now;
  shown_.clear();
  patterns_.clear();
  sentence_ = error_sentence(ui.bench.step(), summary, ui.bench.op(), ui.bench.cursor());
  return sentence_;
}

const ShownResult& ErrorPanel::shown_of(const StepTrace& step, const OpTrace& op,
                                        const TapResult& result) {
  const auto known = shown_.find(&result);
  return known != shown_.end()
             ? known->second
             : shown_.emplace(&result, shown_result(step, op, result)).first->second;
}

void ErrorPanel::draw_legend() const {
  const auto wrap = [](float wanted) {
    if (ImGui::GetContentRegionAvail().x < wanted) ImGui::NewLine();
  };
  for (int i = 0; i < kErrorKinds; ++i) {
    const auto kind = static_cast<ErrorKind>(i);
    if (i > 0) ImGui::SameLine(0, px(12));
    const float swatch = ImGui::GetFontSize() + px(8);
    wrap(ImGui::CalcTextSize(error_kind_name(kind)).x + swatch);
    ImGui::BeginGroup();
    legend(kind_colour(kind, Verdict::kRounding), error_kind_name(kind));
    ImGui::EndGroup();
    if (ImGui::IsItemHovered()) tooltip(error_kind_help(kind));
  }
  ImGui::SameLine(0, px(12));
  wrap(ImGui::CalcTextSize("budget used").x);
  ImGui::TextDisabled("budget used");
  if (ImGui::IsItemHovered()) tooltip(kBudgetHelp);
}

std::string ErrorPanel::row_name(const OpError& row) const {
  const char* name = as_op_find(row.place.op)->name;
  return scope_ == 1 && row.place.layer >= 0 ? fmt::format("{} {}", row.place.layer, name) : name;
}

std::string ErrorPanel::row_tip(const OpError& row) const {
  std::string text = fmt::format("{}\n{} of {} taps: {}", format_place(row.place), row.tap,
                                 row.taps, verdict_name(row.worst));
  for (int i = 0; i < kErrorKinds; ++i) {
    const auto& value = row.errors[to_size(i)][to_size(figure_)];
    text += fmt::format("\n{} {}: {}", error_kind_name(static_cast<ErrorKind>(i)),
                        kErrorFigureNames[to_size(figure_)],
                        value ? format_error(*value) : "not measured");
  }
  return text + "\n" + budget_words(row.budget) + (scope_ == 2 ? "; worst of all steps" : "");
}

void ErrorPanel::draw_axis(ImVec2 min, ImVec2 max) const {
  ImDrawList* list = ImGui::GetWindowDrawList();
  const int decades = axis_.high - axis_.low;
  float free = min.x;  // where the next label may start
  for (int power = axis_.low; power <= axis_.high; ++power) {
    const float unit = static_cast<float>(power - axis_.low) / static_cast<float>(decades);
    const float x = min.x + unit * (max.x - min.x);
    list->AddLine({x, min.y + ImGui::GetTextLineHeight()}, {x, max.y}, theme().grid);
    const std::string label = fmt::format("1e{}", power);
    const float width = ImGui::CalcTextSize(label.c_str()).x;
    const float left = std::clamp(x - width / 2, min.x, max.x - width);
    if (left < free) continue;
    free = left + width + px(8);
    list->AddText({left, min.y}, theme().text_faint, label.c_str());
  }
}

void ErrorPanel::draw_row(const OpError& row, ImVec2 bars_min, ImVec2 bars_max, ImVec2 budget_min,
                          ImVec2 budget_max) const {
  ImDrawList* list = ImGui::GetWindowDrawList();
  const Theme& t = theme();
  const float height = (bars_max.y - bars_min.y) / kErrorKinds;
  for (int i = 0; i < kErrorKinds; ++i) {
    const auto& value = row.errors[to_size(i)][to_size(figure_)];
    if (!value || *value == 0) continue;
    const bool finite = std::isfinite(*value);
    const float y = bars_min.y + height * static_cast<float>(i);
    const float x = bars_min.x + (finite ? axis_.unit(*value) : 1.0f) * (bars_max.x - bars_min.x);
    list->AddRectFilled({bars_min.x, y}, {x, y + height - px(1)},
                        finite ? kind_colour(static_cast<ErrorKind>(i), row.worst) : t.nan_cell);
  }
  const ImU32 colour = verdict_colour(row.worst);
  const auto used = static_cast<float>(std::min(row.budget.used, 1.0));
  list->AddRectFilled(budget_min, budget_max, t.surface);
  list->AddRectFilled(budget_min,
                      {budget_min.x + used * (budget_max.x - budget_min.x), budget_max.y},
                      with_alpha(colour, 0.6f));
  const std::string text = row.worst == Verdict::kNotCompared ? "-" : budget_short(row.budget);
  const bool wide = ImGui::CalcTextSize(text.c_str()).x + px(2) > budget_max.x - budget_min.x;
  if (wide) ImGui::PushFont(nullptr, ImGui::GetStyle().FontSizeBase * 0.72f);
  const ImU32 below = used > 0.5f ? over(with_alpha(colour, 0.6f), t.surface) : t.surface;
  draw_cell_text(list, budget_min, budget_max, ink_on(below), text);
  if (wide) ImGui::PopFont();
}

void ErrorPanel::draw_bars(Ui& ui, float height) {
  ImGui::PushFont(numbers(), 0);
  const Theme& t = theme();
  const float line = row_height();
  const float all = line * static_cast<float>(rows_.size());
  const float header = ImGui::GetTextLineHeight() + px(3);
  const float rest = std::min(all, height - header);
  const float width =
      ImGui::GetContentRegionAvail().x - (rest < all ? ImGui::GetStyle().ScrollbarSize : 0.0f);
  float name = 0;
  for (const OpError& row : rows_) {
    name = std::max(name, ImGui::CalcTextSize(row_name(row).c_str()).x);
  }
  name = std::min(name + px(24), width * 0.55f);
  const float budget = px(58);
  const float bars = std::max(px(40), width - name - budget - px(12));
  const ImVec2 top = ImGui::GetCursorScreenPos();
  draw_axis({top.x + name, top.y}, {top.x + name + bars, top.y + header + rest});
  const char* word = "budget";
  ImGui::GetWindowDrawList()->AddText({top.x + width - ImGui::CalcTextSize(word).x, top.y},
                                      t.text_faint, word);
  ImGui::Dummy({width, ImGui::GetTextLineHeight()});
  ImGui::SetCursorScreenPos({top.x, top.y + header});
  if (!ImGui::BeginChild("##bars", {-1, rest})) {
    ImGui::EndChild();
    ImGui::PopFont();
    return;
  }
  ImDrawList* list = ImGui::GetWindowDrawList();
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, ImVec2(0, 0));
  const Place& cursor = ui.bench.cursor();
  const auto is_chosen = [&](const OpError& row) {
    return row.place.op == cursor.op && (scope_ == 2 || row.place.layer == cursor.layer);
  };
  if (cursor != scrolled_to_ || scope_ != scrolled_scope_) {
    scrolled_to_ = cursor;
    scrolled_scope_ = scope_;
    const auto chosen = std::find_if(rows_.begin(), rows_.end(), is_chosen);
    const float y = line * static_cast<float>(chosen - rows_.begin());
    const float from = ImGui::GetScrollY();
    if (chosen != rows_.end() && (y < from || y + line > from + rest)) {
      ImGui::SetScrollY(std::max(0.0f, y - rest / 2));
    }
  }
  ImGuiListClipper clipper;
  clipper.Begin(static_cast<int>(rows_.size()), line);
  while (clipper.Step()) {
    for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
      const OpError& row = rows_[to_size(i)];
      const ImVec2 a = ImGui::GetCursorScreenPos();
      const std::string label = row_name(row);
      const bool clicked =
          ImGui::InvisibleButton(fmt::format("{}##{}", label, i).c_str(), {width, line}) ||
          picked_for_menu();
      const bool hovered = ImGui::IsItemHovered();
      const bool chosen = is_chosen(row);
      if (hovered || chosen) {
        list->AddRectFilled(a, {a.x + width, a.y + line},
                            with_alpha(hovered ? t.accent_soft : t.accent, 0.15f));
      }
      list->AddText({a.x + px(2), a.y + px(1)}, verdict_colour(row.worst),
                    verdict_glyph(row.worst));
      text_cut_middle(list, {a.x + px(20), a.y + px(1)}, name - px(24), chosen ? t.accent : t.text,
                      label);
      draw_row(row, {a.x + name, a.y + px(2)}, {a.x + name + bars, a.y + line - px(1)},
               {a.x + width - budget, a.y + px(1)}, {a.x + width, a.y + line - px(1)});
      if (hovered) tooltip(row_tip(row));
      if (clicked) ui.bench.go_to(row.place);
    }
  }
  ImGui::PopStyleVar();
  ImGui::PopFont();
  ImGui::EndChild();
}

// The narrow table leaves to the lines below it what does not fit.
void ErrorPanel::fill_results(const OpTrace& op) {
  std::vector<TableColumn> columns = {
      {"tap", false, narrow_ ? 1.8f : 1.9f},
      {"", false, narrow_ ? 0.35f : 1.3f, "Verdict."},
      {"max abs", true, 1, "Largest |engine - ref.sim|, introduced."},
      {"max rel", true, 1, "Largest |engine - ref.sim| / (|ref.sim| + 1e-6)."},
      {"cosine", true, 1, "1 - 2 sum(ab) / sum(a^2 + b^2) over the whole tap."},
      {"differ", true, 0.9f, "Elements that are not bit equal."},
      {"budget", true, 0.9f, kBudgetHelp},
      {"class", false, 1, "Tolerance class of assets/tolerances.json."}};
  const auto leave_out = [&](auto& cells) {
    if (!narrow_) return;
    cells.erase(cells.begin() + 7);
    cells.erase(cells.begin() + 3, cells.begin() + 5);
  };
  leave_out(columns);
  results_.columns(std::move(columns));
  const TableCell none{"-", theme().text_faint};
  const auto error = [](double v) {
    return TableCell{format_error(v), 0, v, true, format_exact(v)};
  };
  for (std::size_t i = 0; i < op.results.size(); ++i) {
    const TapResult& r = op.results[i];
    const ErrorFigures f = r.introduced.value_or(ErrorFigures{});
    const bool has = r.introduced.has_value();
    TableCell budget = error(r.budget_used);
    budget.text = budget_short(budget_of(r));
    if (r.budget_used > 1) budget.colour = theme().bad;
    const std::string word = narrow_ ? "" : fmt::format(" {}", verdict_name(r.verdict));
    std::vector<TableCell> cells = {
        {r.tap},
        {verdict_glyph(r.verdict) + word, verdict_colour(r.verdict), 0, false,
         verdict_name(r.verdict)},
        has ? error(f.max_abs) : none,
        has ? error(f.max_rel) : none,
        has ? error(f.cosine) : none,
        has ? TableCell{format_count(f.differing), 0, static_cast<double>(f.differing), true}
            : none,
        has ? budget : none,
        {r.tolerance}};
    leave_out(cells);
    results_.row(std::move(cells), static_cast<std::int64_t>(i));
  }
}

void ErrorPanel::draw_results(Ui& ui, const OpTrace& op) {
  const bool narrow = ImGui::GetContentRegionAvail().x < px(540);
  if (results_op_ != &op || results_place_ != op.place || narrow != narrow_) {
    results_op_ = &op;
    results_place_ = op.place;
    narrow_ = narrow;
    ++results_version_;
  }
  results_.begin(results_version_);
  if (results_.stale()) fill_results(op);
  const TapResult* shown = chosen_result(ui.bench.selection(), op);
  const std::int64_t selected = shown == nullptr ? -1 : shown - op.results.data();
  const float row = ImGui::GetTextLineHeightWithSpacing() + px(4);
  const float height = row * static_cast<float>(std::min<std::size_t>(op.results.size(), 6) + 1);
  // Two tables: widths that a user drew in one are none of the other's.
  const char* id = narrow ? "##results_narrow" : "##results";
  if (const auto key = results_.draw(id, {-1, height + px(6)}, selected, false)) {
    const std::string& tap = op.results[to_size(*key)].tap;
    if (op.tap(tap) != nullptr || op.cache_rows(tap) != nullptr) {
      ui.run("tensor.tap=" + tap);
    }
  }
}

// Bytes of the worst element where it lies in a cache: the engine's and ref.sim's.
void ErrorPanel::draw_cached(const Ui& ui, const OpTrace& op, const TapResult& result) const {
  const auto cached = cached_element(op, result);
  if (!cached || cached->dim < 0) return;
  const RowsCopy& rows = *cached->rows;
  const auto& groups = ui.bench.snapshot()->info->layout.groups;
  const std::string group = rows.group >= 0 && to_size(rows.group) < groups.size()
                                ? " of " + groups[to_size(rows.group)].name
                                : "";
  field("lives in",
        fmt::format("{}{}, dim {} of its {}", slot_text(cached->slot, rows.rows_per_block), group,
                    cached->dim, record_name(rows.record)));
  const StepTrace* step = ui.bench.step();
  const std::vector<float> beside = step == nullptr
                                        ? std::vector<float>()
                                        : scales_beside_cache(*step, op.place.layer, rows.name);
  const auto words_of = [&](const std::vector<std::uint8_t>& bytes) {
    const auto n = static_cast<std::size_t>(rows.row_bytes);
    const std::span<const std::uint8_t> row(bytes.data() + to_size(cached->row) * n, n);
    return element_words(
        decode_element({rows.record, rows.width, row, rows.heads, beside}, cached->dim));
  };
  field("bytes", words_of(rows.bytes));
  if (!rows.reference.empty()) field("ref.sim's", words_of(rows.reference));
}

// What the wrong elements have in common.
void ErrorPanel::draw_pattern(const Ui& ui, const StepTrace& step, const OpTrace& op,
                              const TapResult& result) {
  auto known = patterns_.find(&result);
  if (known == patterns_.end()) {
    const std::int64_t turned = ui.bench.snapshot()->info->config.rope_dim;
    known = patterns_.emplace(&result, pattern_of(step, op, result, turned)).first;
  }
  for (const ErrorFinding& finding : known->second) {
    field("pattern", finding.sentence);
  }
}

// Known mistakes that give the same output.
void ErrorPanel::draw_causes(Ui& ui, const OpTrace& op) {
  const auto& causes = ui.bench.causes();
  if (causes != nullptr && causes->place == op.place) {
    // Of tensors draw_pattern() has them already.
    for (const ExplainedTap& tap : causes->why.taps) {
      if (op.cache_rows(tap.tap) == nullptr) continue;
      for (const ErrorFinding& finding : tap.findings) field("pattern", finding.sentence);
    }
    for (const std::string& line : causes->why.causes()) field("cause", line);
    return;
  }
  if (const auto asking = ui.bench.asking()) {
    dim(fmt::format("On the way to {}: {:.0f} %.", format_place(asking->second),
                    100 * asking->first));
  } else if (as_op_has(op.place.op, AS_BY_ENGINE) == 0) {
    if (ImGui::Button("Which mistake gives this?###causes")) ui.run("error.causes");
    if (ImGui::IsItemHovered()) {
      tooltip(
          "Runs the op on the same inputs with each well-known mistake in it, and names those that "
          "give this output. A mistake that does need not be the one that was made.");
    }
  }
}

void ErrorPanel::draw_worst(Ui& ui, const StepTrace& step, const OpTrace& op,
                            const TapResult& compared) {
  const ShownResult& shown = shown_of(step, op, compared);
  const TapResult& result = shown.result;
  ImGui::SeparatorText(fmt::format("{}.{}", as_op_find(op.place.op)->name, result.tap).c_str());
  verdict_chip(result.verdict);
  ImGui::SameLine();
  ImGui::TextDisabled(
      "%s",
      fmt::format("{}: class \"{}\"", budget_words(budget_of(result)), result.tolerance).c_str());
  if (result.verdict == Verdict::kWrong) draw_causes(ui, op);
  if (result.introduced && result.introduced->differing > 0) {
    const ErrorFigures& f = *result.introduced;
    std::string text =
        fmt::format("{} of {} elements", format_count(f.differing), format_count(result.elements));
    if (f.max_abs > 0) {
      text += fmt::format("; max abs {}, max rel {}, cosine {}", format_error(f.max_abs),
                          format_error(f.max_rel), format_error(f.cosine));
    }
    field("differ", text);
  }
  if (shown.elsewhere) {
    field("not kept", worst_text(step, compared) + ": " + worst_words(compared));
    if (ImGui::IsItemHovered()) {
      tooltip(
          "The worst element of all. The trace of this step does not keep its row, so that "
          "nothing more can be shown of it.");
    }
    if (!result.worst) ImGui::TextDisabled("the rows that are kept agree");
  }
  if (result.worst) {
    field(shown.elsewhere ? "worst kept" : "worst at", worst_text(step, result));
    const bool whole = result.dtype == "i32" || result.dtype == "i64" || result.dtype == "u8";
    const double value = result.worst->value, reference = result.worst->reference;
    const auto text = [&](double v) {
      return whole && v == -1 ? std::string("-1 (none)") : format_exact(v);
    };
    field("engine", text(value));
    field("ref.sim", text(reference));
    if (!whole) field("difference", format_error(std::fabs(value - reference)));
    draw_cached(ui, op, result);
    draw_pattern(ui, step, op, compared);
  } else if (result.verdict == Verdict::kEqual) {
    ImGui::TextDisabled(
        "%s", fmt::format("all {} elements are the reference's bits", format_count(result.elements))
                  .c_str());
  }
  if (result.selection && result.selection->tokens > 0) {
    field("free run",
          fmt::format("{} selected {} than ref.sim on its own history",
                      plural(result.selection->tokens, "token", "tokens"),
                      plural(result.selection->entries, "other entry", "other entries")));
  }
  if (!result.note.empty()) {
    ImGui::PushStyleColor(ImGuiCol_Text,
                          result.verdict == Verdict::kWrong ? theme().text : theme().text_dim);
    ImGui::TextWrapped("%s", result.note.c_str());
    ImGui::PopStyleColor();
  }
  command_button(ui, "error.show_difference", "Show the difference");
}

void ErrorPanel::draw(Ui& ui) {
  if (ui.bench.snapshot() == nullptr) {
    empty_state(ui, "No session yet: its first picture has not arrived.");
    return;
  }
  const StepSummary* summary = ui.bench.summary();
  if (summary == nullptr) {
    empty_state(ui, no_trace(ui.bench, "there is nothing to compare"), "step.forward");
    return;
  }
  const StepTrace* step = ui.bench.step();
  const OpTrace* op = ui.bench.op();
  refresh(ui, *summary);
  sentence(words(ui, *summary), error_verdict(*summary, op));
  int scope = scope_;
  if (segmented("##scope", &scope, kScopes, 3)) {
    ui.run(fmt::format("error.scope={}", kScopeNames[to_size(scope)]));
  }
  ImGui::SameLine(0, px(14));
  int which = figure_;
  if (segmented("##figure", &which, kErrorFigureNames.data(), kErrorFigures)) {
    ui.run(fmt::format("error.figure={}", kFigureNames[to_size(which)]));
  }
  draw_legend();
  if (rows_.empty()) {
    ImGui::TextDisabled("No op of this layer has run yet in this step.");
  } else {
    draw_bars(ui, std::max(px(120), ImGui::GetWindowHeight() * 0.45f));
  }
  if (op == nullptr || step == nullptr) {
    const std::string missing = ui.bench.why_missing();
    dim(missing.empty() ? "The trace of the op under the cursor is not kept." : missing);
    return;
  }
  if (op->results.empty()) {
    ImGui::TextDisabled("%s has no compared taps.", as_op_find(op->place.op)->name);
    return;
  }
  draw_results(ui, *op);
  if (const TapResult* result = chosen_result(ui.bench.selection(), *op))
    draw_worst(ui, *step, *op, *result);
}

}  // namespace

std::unique_ptr<Panel> make_error_panel() { return std::make_unique<ErrorPanel>(); }

}  // namespace attnscope::gui
