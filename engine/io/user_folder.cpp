#include "engine/io/user_folder.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

namespace attnscope {

Result<std::string> user_folder(const char* variable, const char* below_home, const char* what) {
  const char* named = std::getenv(variable);
  const char* home = std::getenv("HOME");
  std::filesystem::path base;
  if (named != nullptr && *named == '/') {  // a relative one does not count
    base = named;
  } else if (home != nullptr && *home != '\0') {
    base = std::filesystem::path(home) / below_home;
  } else {
    return Error{AS_NO_ENVIRONMENT,
                 fmt::format("no folder for {}: neither {} nor HOME is set", what, variable),
                 fmt::format("set {} to a folder that can be written", variable)};
  }
  return (base / "attnscope").string();
}

}  // namespace attnscope
