// Which paths a step took, in its line of steps.jsonl.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/session/step/step_trace.h"

namespace attnscope {

// line: the text of an object that has keys.
void put_coverage(const StepSummary& summary, std::string& line);
// Nothing where the line has none: it is of an older program, or nobody watched. False: damaged.
bool take_coverage(const nlohmann::json& line, StepSummary& summary);

}  // namespace attnscope
