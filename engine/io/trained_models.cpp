#include "engine/io/trained_models.h"

#include <fmt/format.h>

#include <filesystem>

#include "engine/io/user_folder.h"

namespace attnscope {

namespace fs = std::filesystem;

std::string trained_base(std::string_view name) {
  constexpr std::string_view kEnding = "-trained";
  if (!name.ends_with(kEnding) || name.find('/') != std::string_view::npos) return {};
  return std::string(name.substr(0, name.size() - kEnding.size()));
}

Result<std::string> trained_folder() {
  auto folder = user_folder("XDG_DATA_HOME", ".local/share", "trained models");
  if (!folder) return folder;
  return (fs::path(*folder) / "trained").string();
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
