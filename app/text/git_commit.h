// Which commit a folder is at, read from git's own files, so that no git program is needed.
#pragma once

#include <string>

namespace attnscope {

// 40 hex digits; empty outside a repository.
std::string git_commit(const std::string& folder);

}  // namespace attnscope
