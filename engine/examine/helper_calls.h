// Ordinary calls of helper ops, which no step of a model makes.
#pragma once

#include <vector>

#include "engine/opcase/op_case.h"

namespace attnscope {

// The smallest first, outputs not yet written; none for ops that there are no calls of.
std::vector<OpCase> helper_calls(const CaseOp& op);

}  // namespace attnscope
