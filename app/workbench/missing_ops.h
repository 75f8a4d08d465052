// What a panel lacks in a capture where it draws other ops than the one under the cursor.
#pragma once

#include <initializer_list>
#include <string>

#include "app/workbench/workbench.h"

namespace attnscope {

// Which ops of a layer that are for this have no values in the step that a capture shows, and how
// to record them; empty when all have, and for a session. layer -1: none is chosen.
std::string missing_ops(const Workbench& bench, int layer, std::initializer_list<as_role> roles);

}  // namespace attnscope
