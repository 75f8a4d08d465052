// Where a user's files of one kind lie, as the XDG base directory specification says.
#pragma once

#include <string>

#include "kernels/params/result.h"

namespace attnscope {

// attnscope's folder below $variable, else below ~/below_home; it need not exist. what: that it is
// for, in the error of a machine that says neither.
Result<std::string> user_folder(const char* variable, const char* below_home, const char* what);

}  // namespace attnscope
