// The evidence behind a verdict, in one sentence that a person can act on: where the worst element
// lies in the words of the op table, with the token's request and position and the slot's block.
#pragma once

#include <string>

#include "engine/session/step/op_params.h"
#include "engine/trace/compare.h"

namespace attnscope {

struct StepMetadata;

// step: nullptr before the tokens of a step are planned.
std::string evidence(const Comparison& comparison, const OpParams& params, const as_tap_info& tap,
                     const as_tensor& value, const StepMetadata* step);

}  // namespace attnscope
