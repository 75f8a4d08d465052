// Selections of one request in one layer from step to step: margin and change of the set as two
// small plots, and the table behind them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/gui/data_table.h"
#include "app/views/top_k_view.h"
#include "app/workbench/capture_scan.h"
#include "app/workbench/workbench.h"

namespace attnscope::gui {

class TopKSteps {
 public:
  // Of a session the steps whose traces are kept, of a capture all that hold values; each is worked
  // out once. A capture is read in slices of time, some steps a call.
  void refresh(const Workbench& bench, int layer, std::int32_t request, const Tolerance& tolerance);
  const std::vector<TopKStep>& steps() const { return steps_; }
  bool reading() const { return reading_; }  // there are more, for the next call
  std::string sentence() const;
  // Fills the space left, with or without the table. Returns a step that was clicked. There must be
  // steps.
  std::optional<std::int64_t> draw(std::int64_t cursor_step, bool table);

 private:
  std::optional<std::int64_t> draw_margins(std::int64_t cursor_step, ImVec2 size) const;
  std::optional<std::int64_t> draw_changes(std::int64_t cursor_step, ImVec2 size) const;
  void fill_table();
  void take_kept(const Snapshot& snapshot, bool same, const Tolerance& tolerance);
  void read_on(const Capture& capture, const Snapshot& snapshot, const Tolerance& tolerance);

  using Ops =
      std::pair<const OpTrace*, const OpTrace*>;  // this step's indexer_topk, the one before
  std::shared_ptr<const Snapshot> held_;  // keeps the ops alive, so that their addresses are keys
  int layer_ = -1;
  std::int32_t request_ = -1;
  std::map<Ops, TopKStep> known_;
  CaptureScan scan_;  // of a capture
  bool reading_ = false;
  std::vector<TopKStep> steps_;
  std::uint64_t version_ = 0;  // of steps_
  DataTable table_;
};

}  // namespace attnscope::gui
