// A number from step to step, as a curve, with the reference's or another one beside it.
#pragma once

#include <imgui.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "app/views/number_history.h"

namespace attnscope::gui {

class HistoryPlot {
 public:
  // version: another one when `values` changed. Returns a step that was clicked.
  std::optional<std::int64_t> draw(const NumberHistory& values, std::uint64_t version,
                                   NumberKind kind, std::int64_t cursor, ImVec2 size);

 private:
  std::optional<std::int64_t> pick(const NumberHistory& values, const NumberWords& words) const;

  std::uint64_t version_ = 0;
  std::vector<double> steps_, values_, beside_;
};

}  // namespace attnscope::gui
