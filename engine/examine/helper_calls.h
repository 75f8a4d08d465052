// Ordinary calls of helper ops, which no step of a model makes.
#pragma once

#include <vector>

#include "engine/opcase/op_case.h"

namespace attnscope {

// The smallest first, outputs not yet written; none for ops that there are no calls of. page_ends:
// such that end at, before and behind the ends of pages; none where an op has no pages.
std::vector<OpCase> helper_calls(const CaseOp& op, bool page_ends = false);

}  // namespace attnscope
