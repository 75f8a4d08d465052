// Planted bugs of what ops are given and no op puts out: lanes mutant:NAME of the op schedule. The
// op itself is sound; what such a lane does between two ops is not. input_checks.h finds them.
#pragma once

#include <vector>

#include "engine/backend/registry.h"
#include "engine/session/step/between_ops.h"

namespace attnscope {

struct GivenMutant {
  const char* name;  // of the lane
  const char* description;
  as_op_id shows;  // the op that is given what is wrong
  BetweenOps between;
};

const std::vector<GivenMutant>& given_mutants();
// All as lanes.
void add_given_mutants(LaneRegistry& registry);

}  // namespace attnscope
