#include "app/cli/writable.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "engine/io/folder.h"

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
  return check_folder(fmt::format("{} {}", option, path), folder, "name another file");
}

}  // namespace attnscope
