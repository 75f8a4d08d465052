// Attention weight of one token by head and row, in a layer that selects nothing: what its heads
// look at.
//
//   MassView view = mass_view(info, *step, layer, row, head);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/views/window_view.h"

namespace attnscope {

struct MassView {
  std::string why_empty;  // not empty: nothing to show, for this reason
  std::string sentence;
  int layer = -1;  // published number
  std::int64_t position = -1;
  std::int64_t heads = 0;
  WindowView rows;            // that the token attends, a column each
  std::vector<float> weight;  // [heads, rows.slots]
};

// layer: published number; a token row of the step.
MassView mass_view(const SessionInfo& info, const StepTrace& step, int layer, std::int64_t row,
                   int head);

}  // namespace attnscope
