// A case as what a step's trace holds of its op.
#pragma once

#include <string>

#include "engine/opcase/op_case.h"
#include "engine/session/step/step_trace.h"

namespace attnscope {

// Tensors point into `done`. Tokens of cache rows are rows of the case's own token axis; they have
// no group; the place is step 0 outside the layers. `done` is no helper.
OpTrace trace_of_case(const OpCase& done, const std::string& lane);

}  // namespace attnscope
