// Ordinary calls of the helper ops that make tables and lists of a batch.
#pragma once

#include <vector>

#include "engine/opcase/op_case.h"

namespace attnscope {

bool has_table_calls(const CaseOp& op);

// The smallest first, outputs not yet written. page_ends: sequences that end at, before and behind
// the ends of blocks; none where an op knows no sizes of blocks.
std::vector<OpCase> table_calls(const CaseOp& op, bool page_ends);

}  // namespace attnscope
