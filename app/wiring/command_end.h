// What every main() does around its command: errors and faults of plugins are said, exceptions end
// here, and an exit code comes of it.
#pragma once

#include <functional>

#include "kernels/params/result.h"

namespace attnscope {

// Calls it with the process prepared for full disks; an exception is said and becomes a code.
int guarded_main(const std::function<int()>& body);

// Says what plugins did, what is wrong, and what could not be written; the exit code.
int exit_code_of(const Result<as_status>& result);

}  // namespace attnscope
