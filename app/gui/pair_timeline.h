// The timelines of two runs, one below the other: a column a step, its worst verdict as colour, its
// time as height; a line joins the steps that computed the token that is looked at.
#pragma once

#include <cstdint>
#include <utility>

#include "app/views/pair_steps.h"

namespace attnscope::gui {

struct PairTimelineEvents {
  std::int64_t first = -1, second = -1;  // step that was clicked, in one of them
};

class PairTimeline {
 public:
  // here: the steps of the token in both; -1 = none.
  PairTimelineEvents draw(const RunPair& comparison, const PairSteps& steps,
                          std::pair<std::int64_t, std::int64_t> here, float width,
                          float height) const;
};

}  // namespace attnscope::gui
