// What the timeline shows: steps by layers, one byte a cell, so that ten thousand steps of sixty
// layers can be merged to the width of a screen in a fraction of a frame.
//
//   data.update(*snapshot);                        // looks at changed steps only
//   TimelineGrid grid = timeline_grid(data, from, end, 500, 5);   // worst verdict per column
//   sentence(timeline_sentence(data), timeline_verdict(data));
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/session/snapshot.h"

namespace attnscope {

// 0 = nothing ran, then by severity: not compared, equal, rounding, quantisation, near-tie, wrong.
using Severity = std::uint8_t;
inline constexpr Severity kNothingRan = 0;
Severity severity(Verdict verdict);
Verdict verdict_of(Severity severity);  // kNotCompared for kNothingRan

// "near-tie", "not compared": a verdict as a word.
std::string verdict_word(Verdict verdict);

// The cell of a layer; nullptr when the step has none.
const LayerCell* find_cell(const StepSummary& step, int layer);

// What is known of one step without its cells.
struct StepFacts {
  std::shared_ptr<const StepSummary> source;
  std::int64_t taps = 0, compared = 0, wrong = 0, near_ties = 0;
  std::array<std::int64_t, kVerdicts> counts{};
  const TapResult* worst = nullptr;        // largest budget used; null: nothing was compared
  const TapResult* first_wrong = nullptr;  // in causal order
  Severity severity = kNothingRan;
};

// Neighbouring steps of one kind.
struct TimelineRun {
  std::int64_t first = 0, end = 0;  // steps [first, end)
  std::int64_t tokens = 0;
  bool decode = false;
  bool selective = false;  // the indexer had more entries than it may select
};
std::string timeline_run_name(const TimelineRun& run);  // "prefill, 2 051 tokens", "decode"

class TimelineData {
 public:
  // Takes over what is new in a snapshot; another session starts afresh.
  void update(const Snapshot& snapshot);

  const std::vector<int>& layers() const { return layers_; }  // rows: -1, then published numbers
  std::size_t rows() const { return layers_.size(); }
  std::int64_t first_step() const { return first_; }
  std::int64_t end_step() const { return first_ + static_cast<std::int64_t>(facts_.size()); }
  bool empty() const { return facts_.empty(); }
  // nullptr outside [first_step, end_step) and where a step is missing.
  const StepFacts* facts(std::int64_t step) const;
  Severity cell(std::int64_t step, std::size_t row) const;
  // One byte a row.
  const Severity* column(std::int64_t step) const;
  float seconds(std::int64_t step) const;
  const std::vector<TimelineRun>& runs() const { return runs_; }
  // Taps of all steps by verdict.
  const std::array<std::int64_t, kVerdicts>& counts() const { return counts_; }
  // Steps from here on were computed before the session went back.
  std::int64_t ahead() const { return ahead_; }
  std::uint64_t version() const { return version_; }

 private:
  void take(std::size_t index, const std::shared_ptr<const StepSummary>& summary);
  void sum_up();

  const SessionInfo* info_ = nullptr;
  std::shared_ptr<const SessionInfo> held_;
  std::vector<int> layers_;
  std::int64_t first_ = 0, ahead_ = 0;
  std::vector<StepFacts> facts_;
  std::vector<Severity> cells_;  // [steps, rows]
  std::vector<float> seconds_;
  std::vector<TimelineRun> runs_;
  std::array<std::int64_t, kVerdicts> counts_{};
  std::uint64_t version_ = 0;
};

// A part of the timeline, reduced to the worst verdict of neighbouring steps and layers. Columns
// start at multiples of per_column, so that a picture that moves does not flicker.
struct TimelineGrid {
  std::int64_t first = 0;  // step of column 0
  std::int64_t per_column = 1, per_row = 1;
  std::int64_t columns = 0, rows = 0;
  std::vector<Severity> cells;  // [rows, columns]
  std::vector<float> seconds;   // longest step of the column; 0 = none
  Severity at(std::int64_t row, std::int64_t column) const {
    return cells[static_cast<std::size_t>(row * columns + column)];
  }
};
// Row 0 (outside the layers) is never merged with layers.
TimelineGrid timeline_grid(const TimelineData& data, double from, double end,
                           std::int64_t max_columns, std::int64_t max_rows);
// Rows of the data [first, second) that a row of the grid stands for.
std::pair<std::size_t, std::size_t> grid_layers(const TimelineGrid& grid, std::int64_t row,
                                                std::size_t data_rows);

// Where the worst of some cells is: the first with the highest severity; nullopt: nothing ran.
struct TimelineCell {
  std::int64_t step = 0;
  std::size_t row = 0;
};
std::optional<TimelineCell> worst_cell(const TimelineData& data, std::int64_t first,
                                       std::int64_t end, std::size_t row_first,
                                       std::size_t row_end);

// Where a click on a cell goes: to the first wrong op, else to a near-tie, else the op that the
// cursor stands on in that layer (or what stands for it), so that only step and layer change.
Place timeline_target(const Snapshot& snapshot, const StepSummary& step, int layer,
                      const Place& cursor);

// Of a session that was read from a file: "steps 0-11 ran when it was open before"; empty = all ran
// in this one.
std::string resumed_steps(const Snapshot& snapshot);
// The panel's first line and its mark.
std::string timeline_sentence(const TimelineData& data);
Verdict timeline_verdict(const TimelineData& data);
// What a cell holds, in lines.
std::string timeline_cell_text(const Snapshot& snapshot, const StepSummary& step, int layer);

// What happened in a step beside its taps; a fault is more than a preemption.
enum class StepTrouble { kNone, kPreemption, kFault };
StepTrouble trouble_of(const StepSummary& step);
// "2 preemptions", "the lane of wo_a failed"; empty: nothing did.
std::string trouble_text(const StepSummary& step);

// Step numbers for an axis: distance between labels of at least `min_pixels`.
std::int64_t axis_distance(double pixels_per_step, double min_pixels);

// Which steps are on the screen. Shows all of them until the user zooms; goes with the newest until
// the user drags it away.
class TimelineZoom {
 public:
  // Every frame: width in pixels, widest column, steps [first, end).
  void set(double width, double max_per_step, std::int64_t first, std::int64_t end);
  double per_step() const { return per_step_; }  // pixels
  double from() const { return from_; }          // step at the left edge, with fraction
  double visible_end() const { return from_ + width_ / per_step_; }
  double x_of(double step) const { return (step - from_) * per_step_; }
  double step_at(double x) const { return from_ + x / per_step_; }
  void zoom(double factor, double at_x);
  // Around the newest step when following, else around the middle.
  void zoom(double factor);
  void pan(double pixels);  // > 0: towards earlier steps
  void fit();
  void follow(bool on);
  void show(std::int64_t step);  // moves as little as possible
  bool fits() const { return fit_; }
  bool follows() const { return fit_ || follow_; }

 private:
  void clamp();
  double least() const;

  double width_ = 1, max_ = 64, per_step_ = 64, from_ = 0;
  std::int64_t first_ = 0, end_ = 1;
  bool fit_ = true, follow_ = true;
};

}  // namespace attnscope
