// Which rows of its caches and rotary tables a call touches: what a case has to keep of them.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/opcase/case_op.h"

namespace attnscope {

// Slots that the op reads or writes in the cache at `offset`, ascending, without those outside of
// it.
std::vector<std::int64_t> slots_touched(const CaseOp& op, const void* params, std::size_t offset);

// Rows of the op's rotary table, ascending, without those outside of it.
std::vector<std::int64_t> rope_rows_read(const CaseOp& op, const void* params);

}  // namespace attnscope
