// The worst element of a compared tap as the screen shows it. References compare every row of a
// step; of a long prompt a trace keeps some. Where the worst element of all lies in a row that is
// not kept, what can be shown is the worst one of the kept rows.
#pragma once

#include <optional>
#include <string>

#include "app/views/tensor_view.h"
#include "engine/session/step/step_trace.h"
#include "engine/trace/compare.h"
#include "engine/trace/tolerances.h"

namespace attnscope {

struct ShownResult {
  TapResult result;  // its worst element is one of a kept row, or none
  // The worst element of all, where its row is not kept; none: it is that of `result`.
  std::optional<WorstElement> elsewhere;
};

// The bounds that the kept rows of a tap are held to, and which of them hold values. None: no
// reference is kept.
struct KeptRule {
  Tolerance rule;
  TapMask mask;
};
std::optional<KeptRule> kept_rule(const OpTrace& op, const TapCopy& tap, const std::string& dtype);

// Compares the kept rows again where it has to: once an op, not once a frame.
ShownResult shown_result(const StepTrace& step, const OpTrace& op, const TapResult& result);

// The same element along the axes of the tap's copy; rank 0: there is none.
TapIndex worst_index(const StepTrace& step, const OpTrace& op, const TapCopy& tap,
                     const ShownResult& shown);

}  // namespace attnscope
