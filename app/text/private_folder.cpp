#include "app/text/private_folder.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace attnscope {

Result<std::string> make_private_folder() {
  std::error_code code;
  const std::filesystem::path base = std::filesystem::temp_directory_path(code);
  const char* const hint = "set TMPDIR to a folder that can be written";
  if (code) return Error{AS_NO_ENVIRONMENT, "no folder for temporary files", hint};
  std::string name = (base / "attnscope-XXXXXX").string();
  if (::mkdtemp(name.data()) != nullptr) return name;
  return Error{AS_NO_ENVIRONMENT,
               fmt::format("{}: no folder for temporary files can be made there: {}", base.string(),
                           std::strerror(errno)),
               hint};
}

}  // namespace attnscope
