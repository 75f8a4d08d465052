// What a lane brings beside ops where ranks share one request (context_parallel.h): functions that
// the session calls on what the ranks do. Part of BetweenOps; planted bugs are made of them.
#pragma once

#include <vector>

#include "engine/cache/context_split.h"
#include "engine/session/step/op_params.h"
#include "kernels/params/helper_params.h"
#include "kernels/params/paged_params.h"

namespace attnscope {

// Each may be null.
struct BetweenRanks {
  // Once it is known which rank keeps which token of a step.
  void (*dealt)(RankSlots& slots) = nullptr;
  // What a rank's attention is called with, of the whole op's call.
  void (*part)(const OpParams& whole, OpParams& call) = nullptr;
  // Whose parts a rank is about to merge, in order.
  void (*parts)(std::vector<int>& ranks) = nullptr;
  void (*merging)(as_merge_states_params& merge) = nullptr;       // what a merge is called with
  void (*merged)(const as_merge_states_params& merge) = nullptr;  // what it has put out
};

}  // namespace attnscope
