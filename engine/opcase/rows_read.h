// Which rows of its caches and rotary tables a call touches: what a case has to keep of them.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/opcase/case_op.h"

namespace attnscope {

// Slots that the op reads or writes in the cache at `offset`, ascending, without those outside of
// it.
std::vector<std::int64_t> slots_touched(const CaseOp& op, const void* params, std::size_t offset);

// What a case keeps of a cache: these slots, and where rows of the first positions come from
// another one, those that such positions have here as well, which a lane reads that knows of no
// other one.
std::vector<std::int64_t> slots_to_keep(const CaseOp& op, const void* params, std::size_t offset);

// Rows of the op's rotary table, ascending, without those outside of it.
std::vector<std::int64_t> rope_rows_read(const CaseOp& op, const void* params);

}  // namespace attnscope
