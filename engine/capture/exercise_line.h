// Which paths a step took, in its line of steps.jsonl.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "engine/session/step_trace.h"

namespace attnscope {

void put_exercise(const StepSummary& summary, nlohmann::json& line);
// Nothing where the line has none: it is of an older program, or nobody watched. False: damaged.
bool take_exercise(const nlohmann::json& line, StepSummary& summary);

}  // namespace attnscope
