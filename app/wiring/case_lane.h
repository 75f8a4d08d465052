// Finding the implementation of a case's op by the name of its lane, and running a case with what
// this build has.
#pragma once

#include <string>

#include "engine/backend/registry.h"
#include "engine/opcase/case_run.h"

namespace attnscope {

// Unknown lane or a lane without the op: AS_USAGE with those that have it; a lane that cannot run
// here: AS_NO_ENVIRONMENT.
Result<CaseLane> find_case_lane(const LaneRegistry& registry, const std::string& name,
                                const CaseOp& op);

// guard and sim of this build for the op; the rest as given.
CaseRunOptions case_options(const LaneRegistry& registry, const CaseOp& op,
                            const Tolerances& tolerances, const as_threads* threads);

}  // namespace attnscope
