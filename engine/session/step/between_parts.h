// What a lane brings beside ops where attention runs over the rows of a pool while others come
// (row_overlap.h): functions that the session calls on the parts. Part of BetweenOps; planted bugs
// are made of them.
#pragma once

#include "engine/session/step/op_params.h"
#include "kernels/params/helper_params.h"

namespace attnscope {

// Each may be null.
struct BetweenParts {
  // What attention over the rows that have come is called with, of the call over all of them.
  void (*missed)(const OpParams& whole, OpParams& call) = nullptr;
  void (*merging)(as_merge_states_params& merge) = nullptr;  // what the merge is called with
};

}  // namespace attnscope
