// Selections of one request in one layer from step to step: margin and change of the set as two
// small plots, and the table behind them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "app/common/views/top_k_view.h"
#include "app/gui/data_table.h"

namespace attnscope::gui {

class TopKSteps {
 public:
  // Steps whose traces are kept; each is worked out once.
  void refresh(std::shared_ptr<const Snapshot> snapshot, int layer, std::int32_t request,
               const Tolerance& tolerance);
  const std::vector<TopKStep>& steps() const { return steps_; }
  // Fills the space left, with or without the table. Returns a step that was clicked. There must be
  // steps.
  std::optional<std::int64_t> draw(std::int64_t cursor_step, bool table);

 private:
  std::optional<std::int64_t> draw_margins(std::int64_t cursor_step, ImVec2 size) const;
  std::optional<std::int64_t> draw_changes(std::int64_t cursor_step, ImVec2 size) const;
  void fill_table();

  using Ops =
      std::pair<const OpTrace*, const OpTrace*>;  // this step's indexer_topk, the one before
  std::shared_ptr<const Snapshot> held_;  // keeps the ops alive, so that their addresses are keys
  int layer_ = -1;
  std::int32_t request_ = -1;
  std::map<Ops, TopKStep> known_;
  std::vector<TopKStep> steps_;
  std::uint64_t version_ = 0;  // of steps_
  DataTable table_;
};

}  // namespace attnscope::gui
