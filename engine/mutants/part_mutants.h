// Planted bugs of attention that runs over the rows of a pool while others come from host memory
// (engine/session/step/row_overlap.h): lanes mutant:NAME of the op schedule, as those of
// given_mutants.h. They do nothing where layers wait for all rows.
#pragma once

#include <vector>

#include "engine/backend/registry.h"
#include "engine/session/step/between_ops.h"
#include "engine/session/step/between_parts.h"

namespace attnscope {

struct PartMutant {
  const char* name;  // of the lane
  const char* description;
  const char* tap;  // of attention: the first that says so
  BetweenParts parts;
};

const std::vector<PartMutant>& part_mutants();
// All as lanes.
void add_part_mutants(LaneRegistry& registry);

}  // namespace attnscope
