// Changes of the ops that compress and select.
#pragma once

#include "engine/session/what_if/what_if_changes.h"

namespace attnscope {

// Of an op, empty = it is none of them.
std::vector<Change> deepseek_v4_changes(as_op_id op);

}  // namespace attnscope
