// Runs ref.sim on what a capture recorded of an op, for comparisons of captures that were recorded
// without references.
#pragma once

#include "engine/capture/own_output.h"
#include "engine/trace/tolerances.h"

namespace attnscope {

// Unknown where the capture does not hold all that the op read. Keeps what it needs.
OwnJudge reference_judge(const Tolerances& tolerances);

}  // namespace attnscope
