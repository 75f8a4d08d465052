#include "engine/io/folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <system_error>

namespace attnscope {

Result<void> check_folder(const std::string& of, const std::filesystem::path& folder,
                          const std::string& or_else) {
  std::error_code error;
  const std::string name = folder.string();
  if (!std::filesystem::is_directory(folder, error)) {
    // Of a folder below a file, too, that file is what is in the way.
    std::filesystem::path there = folder;
    while (there.has_parent_path() && there != there.parent_path() &&
           !std::filesystem::exists(there, error)) {
      there = there.parent_path();
    }
    if (std::filesystem::exists(there, error) && !std::filesystem::is_directory(there, error)) {
      return bad_input(fmt::format("{}: {} is a file, not a folder", of, there.string()), or_else);
    }
    return bad_input(fmt::format("{}: folder {} does not exist", of, name),
                     fmt::format("create it, or {}", or_else));
  }
  if (access(folder.c_str(), W_OK) != 0) {
    return bad_input(fmt::format("{}: folder {} is not writable", of, name),
                     fmt::format("{} in a writable folder", or_else));
  }
  return {};
}

}  // namespace attnscope
