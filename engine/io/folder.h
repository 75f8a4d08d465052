// Whether a folder can take new files.
#pragma once

#include <filesystem>
#include <string>

#include "kernels/params/result.h"

namespace attnscope {

// of: what is to be written there, for the message. or_else: what else the user can do, such as
// "name another file".
Result<void> check_folder(const std::string& of, const std::filesystem::path& folder,
                          const std::string& or_else);

}  // namespace attnscope
