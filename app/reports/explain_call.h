// Why a call came out wrong (engine/explain), with the planted bugs of this build as the known
// mistakes.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/backend/registry.h"
#include "engine/explain/explain_case.h"

namespace attnscope {

// AS_USAGE for an op that has no ref.sim. seconds: see explain_case.
Result<Explanation> explain_call(const OpCase& kept, const LaneRegistry& lanes,
                                 const Tolerances& tolerances, const as_threads* threads,
                                 double seconds = kInfinity);

nlohmann::json explanation_json(const Explanation& why);

}  // namespace attnscope
