// Files and folders that are about to be written: what is there already is the user's.
#pragma once

#include <string>

#include "kernels/params/result.h"

namespace attnscope {

// Whether something has this name, other than an empty folder.
bool is_taken(const std::string& path);

// For commands of the shell: AS_BAD_INPUT where it is taken and nobody said --force.
Result<void> check_free(const std::string& path, bool force);

inline constexpr const char* kForceHelp = "Replace what has that name already";

}  // namespace attnscope
