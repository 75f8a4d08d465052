#include "app/text/state_folder.h"

#include <fmt/format.h>

#include <filesystem>

#include "engine/io/user_folder.h"

namespace attnscope {

namespace fs = std::filesystem;

Result<std::string> state_folder() {
  const auto named = user_folder("XDG_STATE_HOME", ".local/state", "settings");
  if (!named) return named.error();
  const fs::path folder = *named;
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
