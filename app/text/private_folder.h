// A new folder for temporary files that nobody else may enter, under a name that nobody can
// foresee: in a folder that all users write to, another one could have put a file or a link there.
#pragma once

#include <string>

#include "kernels/params/result.h"

namespace attnscope {

// In $TMPDIR, else /tmp; mode 0700. The caller removes it.
Result<std::string> make_private_folder();

}  // namespace attnscope
