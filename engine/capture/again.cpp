#include "engine/capture/again.h"

#include <fmt/format.h>

#include <filesystem>

#include "engine/io/assets_folder.h"
#include "engine/io/shell_word.h"

namespace attnscope {
namespace {

namespace fs = std::filesystem;

// A name where it is one of the program's own scenarios, else the file.
std::string scenario_word(const CaptureOrigin& origin) {
  if (origin.scenario_file.empty()) return shell_word(origin.scenario);
  const fs::path file = origin.scenario_file;
  const auto assets = assets_folder();
  std::error_code code;
  const bool own = assets && fs::equivalent(file.parent_path(), *assets + "/scenarios", code);
  return shell_word(own ? file.stem().string() : file.string());
}

}  // namespace

std::string scenario_words(const CaptureIndex& index) {
  const CaptureOrigin& origin = index.origin;
  const bool of_a_file = !origin.scenario_text.empty() || !origin.scenario_file.empty();
  if (!of_a_file && origin.scenario.ends_with(" dump")) return "";
  std::string words = scenario_word(origin);
  if (!origin.checkpoint.empty()) words += " --model " + shell_word(origin.checkpoint);
  if (!origin.hidden_states.empty()) {
    words += " --hidden-states " + shell_word(origin.hidden_states);
  }
  const std::string& profile = index.model.switches.profile;
  if (!profile.empty() && profile != "vllm") words += " --profile " + shell_word(profile);
  if (index.model.parallel.size > 1) {
    words +=
        fmt::format(" --tp {} --rank {}", index.model.parallel.size, index.model.parallel.rank);
  }
  return words;
}

std::string record_again(const CaptureIndex& index, const std::string& path,
                         const std::string& options) {
  const std::string words = scenario_words(index);
  if (words.empty()) return "It was made of a dump: dump more, and import it again.";
  return fmt::format("Record it with: attnscope record {} -o {} --force {}", words,
                     shell_word(path), options);
}

}  // namespace attnscope
