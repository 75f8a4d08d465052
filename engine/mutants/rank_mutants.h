// Planted bugs of ranks that share one request (engine/session/step/context_parallel.h): lanes
// mutant:NAME of the op schedule, as those of given_mutants.h. They do nothing on one rank.
#pragma once

#include <vector>

#include "engine/backend/registry.h"
#include "engine/session/step/between_ops.h"
#include "engine/session/step/between_ranks.h"

namespace attnscope {

struct RankMutant {
  const char* name;  // of the lane
  const char* description;
  as_op_id shows;   // the op that is to be blamed, of a dense model where this has it
  const char* tap;  // the first of its taps that says so, without the rank
  BetweenRanks ranks;
};

const std::vector<RankMutant>& rank_mutants();
// All as lanes.
void add_rank_mutants(LaneRegistry& registry);

}  // namespace attnscope
