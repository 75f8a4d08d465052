#include "app/views/timeline_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "app/text/format.h"
#include "app/views/batch_view.h"
#include "app/views/budget.h"
#include "app/views/op_order.h"
#include "engine/family/models.h"
#include "engine/model/numbers.h"

namespace attnscope {
namespace {

constexpr std::array kBySeverity = {
    Verdict::kNotCompared,  Verdict::kNotCompared, Verdict::kEqual, Verdict::kRounding,
    Verdict::kQuantisation, Verdict::kNearTie,     Verdict::kWrong};

std::string where(const TapResult& result) {
  std::string text = fmt::format("step {}, ", format_count(result.step));
  if (result.layer >= 0) text += fmt::format("layer {}, ", result.layer);
  const as_op_info* info = as_op_find(result.op);
  return text + (info != nullptr ? info->name : "?");
}

// Of steps that ran as one recorded graph; single ops are measured where somebody watches.
constexpr const char* kNotMeasured = "not measured (step back and step again, to watch it)";

bool ran(const LayerCell& cell) {
  return cell.microseconds != 0 ||
         std::any_of(std::begin(cell.counts), std::end(cell.counts), [](auto n) { return n > 0; });
}

}  // namespace

std::string verdict_word(Verdict verdict) {
  std::string word = verdict_name(verdict);
  std::replace(word.begin(), word.end(), '_', verdict == Verdict::kNearTie ? '-' : ' ');
  return word;
}

const LayerCell* find_cell(const StepSummary& step, int layer) {
  for (const LayerCell& cell : step.layers) {
    if (cell.layer == layer) return &cell;
  }
  return nullptr;
}

Severity severity(Verdict verdict) {
  for (std::size_t i = 1; i < kBySeverity.size(); ++i) {
    if (kBySeverity[i] == verdict) return static_cast<Severity>(i);
  }
  return kNothingRan;
}

Verdict verdict_of(Severity severity) {
  return kBySeverity[std::min<std::size_t>(severity, kBySeverity.size() - 1)];
}

std::string timeline_run_name(const TimelineRun& run) {
  std::string text = run.decode ? "decode" : "prefill, " + plural(run.tokens, "token", "tokens");
  if (run.selective) text += ", the indexer chooses";
  return text;
}

// ---- data

void TimelineData::update(const Snapshot& snapshot) {
  const auto& steps = snapshot.steps;
  const std::int64_t ahead = snapshot.last.step + 1;
  bool changed = ahead != ahead_;
  ahead_ = ahead;
  const std::int64_t first = steps.empty() ? 0 : steps.front()->step;
  const std::int64_t end = steps.empty() ? 0 : steps.back()->step + 1;
  if (snapshot.info.get() != info_ || first != first_) {
    held_ = snapshot.info;
    info_ = held_.get();
    layers_ = {-1};
    for (int layer : info_->config.layers) layers_.push_back(layer);
    first_ = first;
    facts_.clear();
    cells_.clear();
    seconds_.clear();
    changed = true;
  }
  const std::size_t count = to_size(end - first);
  if (count != facts_.size()) {
    facts_.resize(count);
    cells_.resize(count * rows(), kNothingRan);
    seconds_.resize(count, 0);
    changed = true;
  }
  for (const auto& summary : steps) {
    const std::size_t at = to_size(summary->step - first);
    if (facts_[at].source == summary) continue;
    take(at, summary);
    changed = true;
  }
  if (!changed) return;
  sum_up();
  ++version_;
}

void TimelineData::take(std::size_t at, const std::shared_ptr<const StepSummary>& summary) {
  StepFacts facts;
  facts.source = summary;
  for (const TapResult& result : summary->results) {
    ++facts.taps;
    ++facts.counts[static_cast<std::size_t>(result.verdict)];
    facts.severity = std::max(facts.severity, attnscope::severity(result.verdict));
    if (result.verdict == Verdict::kNotCompared) continue;
    ++facts.compared;
    if (facts.worst == nullptr || result.budget_used > facts.worst->budget_used) {
      facts.worst = &result;
    }
    if (result.verdict == Verdict::kNearTie) ++facts.near_ties;
    if (result.verdict != Verdict::kWrong) continue;
    ++facts.wrong;
    if (facts.first_wrong == nullptr) facts.first_wrong = &result;
  }
  Severity* cells = cells_.data() + at * rows();
  std::fill(cells, cells + rows(), kNothingRan);
  std::size_t row = 0;  // both lists are in the same order
  for (const LayerCell& cell : summary->layers) {
    while (row < rows() && layers_[row] != cell.layer) ++row;
    if (row == rows()) break;
    if (ran(cell)) cells[row] = attnscope::severity(cell.worst);
  }
  seconds_[at] = static_cast<float>(summary->seconds);
  facts_[at] = std::move(facts);
}

void TimelineData::sum_up() {
  runs_.clear();
  counts_ = {};
  for (const StepFacts& facts : facts_) {
    if (facts.source == nullptr) continue;
    const StepSummary& s = *facts.source;
    for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += facts.counts[i];
    if (runs_.empty() || runs_.back().decode != s.decode_only ||
        runs_.back().selective != s.selective || runs_.back().end != s.step) {
      runs_.push_back({s.step, s.step, 0, s.decode_only, s.selective});
    }
    runs_.back().end = s.step + 1;
    runs_.back().tokens += s.tokens;
  }
}

const StepFacts* TimelineData::facts(std::int64_t step) const {
  if (step < first_ || step >= end_step()) return nullptr;
  const StepFacts& facts = facts_[to_size(step - first_)];
  return facts.source != nullptr ? &facts : nullptr;
}

const Severity* TimelineData::column(std::int64_t step) const {
  return cells_.data() + to_size(step - first_) * rows();
}

Severity TimelineData::cell(std::int64_t step, std::size_t row) const {
  return step < first_ || step >= end_step() || row >= rows() ? kNothingRan : column(step)[row];
}

float TimelineData::seconds(std::int64_t step) const {
  return step < first_ || step >= end_step() ? 0 : seconds_[to_size(step - first_)];
}

// ---- grid

TimelineGrid timeline_grid(const TimelineData& data, double from, double end,
                           std::int64_t max_columns, std::int64_t max_rows) {
  TimelineGrid grid;
  if (data.empty() || max_columns < 1 || max_rows < 2) return grid;
  const auto lowest =
      std::max<std::int64_t>(static_cast<std::int64_t>(std::floor(from)), data.first_step());
  const auto highest =
      std::min<std::int64_t>(static_cast<std::int64_t>(std::ceil(end)), data.end_step());
  if (highest <= lowest) return grid;
  grid.per_column = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(std::ceil((end - from) / static_cast<double>(max_columns))));
  grid.first = lowest / grid.per_column * grid.per_column;
  grid.columns = (highest - grid.first + grid.per_column - 1) / grid.per_column;
  const auto layers = static_cast<std::int64_t>(data.rows()) - 1;
  grid.per_row = std::max<std::int64_t>(1, (layers + max_rows - 2) / (max_rows - 1));
  grid.rows = 1 + (layers + grid.per_row - 1) / grid.per_row;
  grid.cells.assign(to_size(grid.rows * grid.columns), kNothingRan);
  grid.seconds.assign(to_size(grid.columns), 0);
  for (std::int64_t step = std::max(grid.first, data.first_step());
       step < std::min(grid.first + grid.columns * grid.per_column, data.end_step()); ++step) {
    const std::int64_t column = (step - grid.first) / grid.per_column;
    const Severity* from_cells = data.column(step);
    for (std::int64_t row = 0; row <= layers; ++row) {
      const std::int64_t to = row == 0 ? 0 : 1 + (row - 1) / grid.per_row;
      Severity& cell = grid.cells[to_size(to * grid.columns + column)];
      cell = std::max(cell, from_cells[row]);
    }
    float& seconds = grid.seconds[to_size(column)];
    seconds = std::max(seconds, data.seconds(step));
  }
  return grid;
}

std::pair<std::size_t, std::size_t> grid_layers(const TimelineGrid& grid, std::int64_t row,
                                                std::size_t data_rows) {
  if (row <= 0) return {0, 1};
  const std::size_t first = to_size(1 + (row - 1) * grid.per_row);
  return {std::min(first, data_rows), std::min(first + to_size(grid.per_row), data_rows)};
}

std::optional<TimelineCell> worst_cell(const TimelineData& data, std::int64_t first,
                                       std::int64_t end, std::size_t row_first,
                                       std::size_t row_end) {
  std::optional<TimelineCell> found;
  Severity worst = kNothingRan;
  for (std::int64_t step = std::max(first, data.first_step());
       step < std::min(end, data.end_step()); ++step) {
    for (std::size_t row = row_first; row < std::min(row_end, data.rows()); ++row) {
      if (data.column(step)[row] <= worst) continue;
      worst = data.column(step)[row];
      found = TimelineCell{step, row};
    }
  }
  return found;
}

Place timeline_target(const Snapshot& snapshot, const StepSummary& step, int layer,
                      const Place& cursor) {
  for (Verdict wanted : {Verdict::kWrong, Verdict::kNearTie}) {
    for (const TapResult& result : step.results) {
      if (result.layer == layer && result.verdict == wanted) return {step.step, layer, result.op};
    }
  }
  // Of a layer that is not through yet, the op that ran last: a click runs nothing.
  if (!step.complete && snapshot.last.step == step.step && snapshot.last.layer == layer) {
    return snapshot.last;
  }
  const SessionInfo& info = *snapshot.info;
  Place place{step.step, layer, cursor.op};
  if (has_place(info, place)) {
    const bool after =
        std::find(info.ops_after.begin(), info.ops_after.end(), place.op) != info.ops_after.end();
    if (layer >= 0 || step.complete || !after) return place;
  }
  if (layer >= 0) {
    const int index = layer_index(info, layer);
    if (index >= 0) place.op = op_seen_in(info, static_cast<std::size_t>(index), place);
    return place;
  }
  place.op = info.ops_before.empty() ? AS_OP_SCHEDULE : info.ops_before.back();
  if (step.complete && !info.ops_after.empty()) place.op = info.ops_after.back();
  return place;
}

// ---- words

Verdict timeline_verdict(const TimelineData& data) {
  Severity worst = kNothingRan;
  for (std::int64_t step = data.first_step(); step < data.end_step(); ++step) {
    if (const StepFacts* facts = data.facts(step)) worst = std::max(worst, facts->severity);
  }
  return verdict_of(worst);
}

std::string resumed_steps(const Snapshot& snapshot) {
  std::int64_t first = -1, last = -1;
  for (const auto& step : snapshot.steps) {
    if (!step->resumed) continue;
    if (first < 0) first = step->step;
    last = step->step;
  }
  if (first < 0) return "";
  return first == last ? fmt::format("step {} ran when it was open before", first)
                       : fmt::format("steps {}-{} ran when it was open before", first, last);
}

std::string timeline_sentence(const TimelineData& data) {
  std::int64_t steps = 0, prefill = 0, compared = 0, wrong = 0, ties = 0;
  const TapResult* worst = nullptr;
  const TapResult* first_wrong = nullptr;
  for (std::int64_t step = data.first_step(); step < data.end_step(); ++step) {
    const StepFacts* facts = data.facts(step);
    if (facts == nullptr) continue;
    ++steps;
    prefill += facts->source->decode_only ? 0 : 1;
    compared += facts->compared;
    wrong += facts->wrong;
    ties += facts->near_ties;
    if (first_wrong == nullptr) first_wrong = facts->first_wrong;
    if (facts->worst != nullptr &&
        (worst == nullptr || facts->worst->budget_used > worst->budget_used)) {
      worst = facts->worst;
    }
  }
  const std::string count = fmt::format("{}, {} of prefill", plural(steps, "step", "steps"),
                                        prefill == steps ? "all" : format_count(prefill));
  if (first_wrong != nullptr) {
    return fmt::format("First wrong tap: {}, {}. {} of {} in {} wrong.", where(*first_wrong),
                       first_wrong->tap, format_count(wrong),
                       plural(compared, "compared tap", "compared taps"),
                       plural(steps, "step is", "steps are"));
  }
  if (compared == 0) return count + "; nothing was compared, because references are off.";
  std::string text =
      fmt::format("{}; {} compared, none wrong", count, plural(compared, "tap", "taps"));
  if (ties > 0) text += ", " + plural(ties, "near-tie", "near-ties");
  if (worst != nullptr && worst->budget_used > 0) {
    text += fmt::format("; at most {}, at {}", budget_words(budget_of(*worst)), where(*worst));
  }
  return text + ".";
}

StepTrouble trouble_of(const StepSummary& step) {
  const auto fault = [](const Event& event) { return event.kind == EventKind::kError; };
  if (std::ranges::any_of(step.events, fault)) return StepTrouble::kFault;
  return step.preemptions > 0 ? StepTrouble::kPreemption : StepTrouble::kNone;
}

std::string trouble_text(const StepSummary& step) {
  std::string text;
  if (step.preemptions > 0) text = plural(step.preemptions, "preemption", "preemptions");
  for (const Event& event : step.events) {
    if (event.kind == EventKind::kError) text += (text.empty() ? "" : "\n") + event.text;
  }
  return text;
}

std::string timeline_cell_text(const Snapshot& snapshot, const StepSummary& step, int layer) {
  std::string text = fmt::format("step {}{} · ", format_count(step.step),
                                 step.resumed ? ", of an earlier start" : "");
  const int at = layer_index(*snapshot.info, layer);
  text += layer < 0 || at < 0
              ? std::string("before and after the layers")
              : fmt::format("layer {} ({})", layer, layer_type_name(snapshot.info->config, at));
  const LayerCell* cell = find_cell(step, layer);
  if (cell == nullptr || !ran(*cell)) return text + "\nhas not run yet";
  std::string counts;
  std::int64_t taps = 0;
  for (std::size_t i = 0; i < kVerdicts; ++i) {
    if (cell->counts[i] == 0) continue;
    taps += cell->counts[i];
    counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", format_count(cell->counts[i]),
                          verdict_word(static_cast<Verdict>(i)));
  }
  text += taps > 0 ? fmt::format("\n{}: {}", plural(taps, "tap", "taps"), counts)
                   : std::string("\nnothing was compared");
  if (cell->budget_used > 0 && std::isfinite(cell->budget_used)) {
    const TapResult* worst = nullptr;
    for (const TapResult& result : step.results) {
      if (result.layer != layer) continue;
      if (worst == nullptr || result.budget_used > worst->budget_used) worst = &result;
    }
    text += "\nat most " +
            budget_words(worst != nullptr ? budget_of(*worst) : Budget{cell->budget_used, false});
    const as_op_info* info = worst != nullptr ? as_op_find(worst->op) : nullptr;
    if (info != nullptr) text += fmt::format(", {} of {}", worst->tap, info->name);
  }
  text += fmt::format(
      "\n{} here, {} in the whole step",
      cell->microseconds < 0 ? std::string(kNotMeasured) : format_us(cell->microseconds),
      format_us(step.seconds * 1e6));
  text += fmt::format("\n{}, {}", step.decode_only ? "decode" : "prefill",
                      plural(step.tokens, "token", "tokens"));
  if (const StepTrace* trace = snapshot.trace(step.step)) {
    const BatchPlan plan = batch_plan(trace->metadata, batch_rules(*snapshot.info));
    if (!plan.rows.empty()) text += ": " + batch_line(plan);
  }
  if (layer >= 0 && at >= 0 && layer_selects(snapshot.info->config, at)) {
    text += step.selective ? "\nmore entries are visible than the indexer may select"
                           : "\nthe indexer selects every visible entry";
  }
  if (step.step > snapshot.last.step) text += "\ncomputed before the session went back";
  return text;
}

std::int64_t axis_distance(double pixels_per_step, double min_pixels) {
  if (!(pixels_per_step > 0)) return 1;
  for (std::int64_t power = 1; power < std::int64_t{1} << 50; power *= 10) {
    for (std::int64_t factor : {1, 2, 5}) {
      if (static_cast<double>(power * factor) * pixels_per_step >= min_pixels) {
        return power * factor;
      }
    }
  }
  return std::int64_t{1} << 50;
}

// ---- zoom

double TimelineZoom::least() const {
  return std::min(max_, width_ / static_cast<double>(std::max<std::int64_t>(1, end_ - first_)));
}

void TimelineZoom::clamp() {
  per_step_ = fit_ ? least() : std::clamp(per_step_, least(), max_);
  const double visible = width_ / per_step_;
  const auto first = static_cast<double>(first_), end = static_cast<double>(end_);
  if (fit_ || visible >= end - first) {
    from_ = first;
  } else {
    from_ = follow_ ? end - visible : std::clamp(from_, first, end - visible);
  }
}

void TimelineZoom::set(double width, double max_per_step, std::int64_t first, std::int64_t end) {
  width_ = std::max(1.0, width);
  max_ = std::max(1.0, max_per_step);
  first_ = first;
  end_ = std::max(end, first + 1);
  clamp();
}

void TimelineZoom::zoom(double factor, double at_x) {
  const double step = step_at(at_x);
  const double before = per_step_;
  const double wanted = std::clamp(per_step_ * factor, least(), max_);
  if (wanted == before) return;
  per_step_ = wanted;
  from_ = step - at_x / per_step_;
  fit_ = false;
  follow_ = false;
  clamp();
  if (per_step_ <= least()) {
    fit_ = true;
  } else {
    follow_ = visible_end() >= static_cast<double>(end_);
  }
}

void TimelineZoom::zoom(double factor) {
  const bool followed = follows();
  zoom(factor, followed ? x_of(static_cast<double>(end_)) : width_ / 2);
  if (followed && !fit_) follow(true);
}

void TimelineZoom::pan(double pixels) {
  if (fit_) return;
  follow_ = false;
  from_ -= pixels / per_step_;
  clamp();
  follow_ = visible_end() >= static_cast<double>(end_);
}

void TimelineZoom::fit() {
  fit_ = true;
  follow_ = true;
  clamp();
}

void TimelineZoom::follow(bool on) {
  fit_ = false;
  follow_ = on;
  clamp();
}

void TimelineZoom::show(std::int64_t step) {
  const auto at = static_cast<double>(step);
  if (fit_ || (at >= from_ && at + 1 <= visible_end())) return;
  follow_ = false;
  from_ = at < from_ ? at : at + 1 - width_ / per_step_;
  clamp();
}

}  // namespace attnscope
