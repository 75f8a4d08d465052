#include "app/text/state_folder.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

namespace attnscope {

namespace fs = std::filesystem;

Result<std::string> state_folder() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  fs::path base;
  if (state != nullptr && *state == '/') {  // a relative one does not count
    base = state;
  } else if (home != nullptr && *home != '\0') {
    base = fs::path(home) / ".local" / "state";
  } else {
    return Error{AS_NO_ENVIRONMENT,
                 "no folder for settings: neither XDG_STATE_HOME nor HOME is set",
                 "set XDG_STATE_HOME to a folder that can be written"};
  }
  const fs::path folder = base / "attnscope";
  std::error_code code;
  fs::create_directories(folder, code);
  if (code || !fs::is_directory(folder, code)) {
    return Error{AS_NO_ENVIRONMENT,
                 fmt::format("folder for settings {}: cannot be created: {}", folder.string(),
                             code ? code.message() : "something that is no folder is there"),
                 "make it writable, or set XDG_STATE_HOME to a folder that can be written"};
  }
  return folder.string();
}

}  // namespace attnscope
