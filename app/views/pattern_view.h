// What the wrong elements of a tap have in common (engine/explain/error_pattern.h), of the rows
// that a trace keeps.
#pragma once

#include <string>
#include <vector>

#include "engine/explain/error_pattern.h"
#include "engine/session/step/step_trace.h"

namespace attnscope {

// rope_dim: dims that the model rotates. Empty: the result is not wrong, or no wrong element is
// kept.
std::vector<ErrorFinding> pattern_of(const StepTrace& step, const OpTrace& op,
                                     const TapResult& result, std::int64_t rope_dim);

}  // namespace attnscope
