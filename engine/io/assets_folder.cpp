#include "engine/io/assets_folder.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

namespace attnscope {

namespace fs = std::filesystem;

Result<std::string> assets_folder() {
  std::error_code code;
  const char* chosen = std::getenv("ATTNSCOPE_ASSETS");
  std::string folder = chosen != nullptr && *chosen != '\0' ? chosen : ATTNSCOPE_SOURCE_ASSETS;
  if (fs::is_directory(folder, code)) return folder;
  return Error{AS_NO_ENVIRONMENT, fmt::format("assets folder {}: not found", folder),
               "set ATTNSCOPE_ASSETS to the folder that holds scenarios/ and prompts.md"};
}

}  // namespace attnscope
