#include "engine/io/trained_models.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

namespace attnscope {

namespace fs = std::filesystem;

std::string trained_base(std::string_view name) {
  constexpr std::string_view kEnding = "-trained";
  if (!name.ends_with(kEnding) || name.find('/') != std::string_view::npos) return {};
  return std::string(name.substr(0, name.size() - kEnding.size()));
}

Result<std::string> trained_folder() {
  const char* data = std::getenv("XDG_DATA_HOME");
  const char* home = std::getenv("HOME");
  fs::path base;
  if (data != nullptr && *data == '/') {  // a relative one does not count
    base = data;
  } else if (home != nullptr && *home != '\0') {
    base = fs::path(home) / ".local" / "share";
  } else {
    return Error{AS_NO_ENVIRONMENT,
                 "no folder for trained models: neither XDG_DATA_HOME nor HOME is set",
                 "set XDG_DATA_HOME to a folder that can be written"};
  }
  return (base / "attnscope" / "trained").string();
}

Result<std::string> trained_checkpoint(std::string_view name) {
  auto folder = trained_folder();
  if (!folder) return folder.error();
  const std::string base = trained_base(name);
  const fs::path checkpoint = fs::path(*folder) / base / kTrainedIndexer;
  std::error_code code;
  if (fs::is_regular_file(checkpoint / "config.json", code)) return checkpoint.string();
  return bad_input(fmt::format("{}: not trained yet: there is no {}", name, checkpoint.string()),
                   fmt::format("train it: attnscope train model {0}, then attnscope train indexer "
                               "{0}",
                               base));
}

}  // namespace attnscope
