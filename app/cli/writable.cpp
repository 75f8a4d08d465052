#include "app/cli/writable.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

namespace attnscope {

Result<void> check_writable(const char* option, const std::string& path) {
  if (path.empty()) return {};
  const std::filesystem::path file(path);
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) {
    return bad_input(fmt::format("{} {}: is a folder", option, path), "name a file");
  }
  if (std::filesystem::exists(file, error) && access(path.c_str(), W_OK) != 0) {
    return bad_input(fmt::format("{} {}: the file is not writable", option, path),
                     "name another file, or make it writable");
  }
  std::filesystem::path folder = file.parent_path();
  if (folder.empty()) folder = ".";
  if (!std::filesystem::is_directory(folder, error)) {
    return bad_input(fmt::format("{} {}: folder {} does not exist", option, path, folder.string()),
                     "create it, or name another file");
  }
  if (access(folder.c_str(), W_OK) != 0) {
    return bad_input(fmt::format("{} {}: folder {} is not writable", option, path, folder.string()),
                     "name a file in a writable folder");
  }
  return {};
}

}  // namespace attnscope
