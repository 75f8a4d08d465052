// Files that options name, looked at before the work whose results they are to hold.
#pragma once

#include <string>

#include "kernels/params/result.h"

namespace attnscope {

// Says at once, before any work, that what an option names could not be written. Without a path
// nothing is asked for.
Result<void> check_writable(const char* option, const std::string& path);

}  // namespace attnscope
