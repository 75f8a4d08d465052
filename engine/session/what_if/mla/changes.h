// What what-if changes in the ops of absorbed MLA.
#pragma once

#include "engine/session/what_if/what_if_changes.h"

namespace attnscope {

std::vector<Change> mla_changes(as_op_id op);

}  // namespace attnscope
