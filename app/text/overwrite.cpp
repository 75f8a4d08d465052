#include "app/text/overwrite.h"

#include <fmt/format.h>

#include <filesystem>

namespace attnscope {

bool is_taken(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code code;
  if (!fs::exists(fs::symlink_status(path, code))) return false;
  return !fs::is_directory(path, code) || !fs::is_empty(path, code);
}

Result<void> check_free(const std::string& path, bool force) {
  if (force || !is_taken(path)) return {};
  return bad_input(fmt::format("{}: exists already", path),
                   "choose another name, or say --force to replace it");
}

}  // namespace attnscope
