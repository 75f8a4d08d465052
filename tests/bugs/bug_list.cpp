#include "tests/bugs/bug_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

namespace attnscope {
namespace {

std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> all;
  for (std::string word; in >> word;) all.push_back(word);
  return all;
}

Error wrong(const std::filesystem::path& patch, const std::string& why) {
  return {AS_BAD_INPUT, fmt::format("{}: {}", patch.filename().string(), why), {}};
}

// Of the lines "KEY: VALUE" up to the empty one.
Result<std::map<std::string, std::string>> read_head(std::istream& in,
                                                     const std::filesystem::path& patch,
                                                     BugsOf part) {
  std::map<std::string, std::string> head = {
      {"Name", ""}, {"Bug", ""}, {"Run", ""}, {"Exit", ""}, {"Says", ""}};
  if (part == BugsOf::kManager) {
    for (const char* key : {"Workloads", "Invariants", "Decisions"}) head.emplace(key, "");
  }
  for (std::string line; std::getline(in, line) && !line.empty();) {
    const std::size_t colon = line.find(": ");
    const auto place = head.find(line.substr(0, colon));
    if (colon == std::string::npos || place == head.end()) {
      return wrong(patch, fmt::format("\"{}\" says nothing that is known", line));
    }
    place->second = line.substr(colon + 2);
  }
  for (const auto& [key, value] : head) {
    if (value.empty()) return wrong(patch, fmt::format("no \"{}:\"", key));
  }
  return head;
}

// What the added lines ask for.
Result<void> check_choice(std::istream& in, const std::filesystem::path& patch) {
  static const std::regex kChoice(R"rx(bug_chosen\("([^"]*)"\))rx");
  bool asks = false;
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("+") || line.starts_with("+++ ")) continue;
    for (std::sregex_iterator it(line.begin(), line.end(), kChoice), end; it != end; ++it) {
      if ((*it)[1] == patch.stem().string()) {
        asks = true;
      } else if (const std::string other = (*it)[1]; !std::filesystem::exists(
                     std::filesystem::path(patch).replace_filename(other + ".patch"))) {
        return wrong(patch, fmt::format("asks for \"{}\", which no patch is named", other));
      }
    }
  }
  if (!asks) return wrong(patch, "its code does not ask whether it is chosen");
  return {};
}

Result<Bug> read_bug(const std::filesystem::path& patch, BugsOf part) {
  std::ifstream in(patch);
  auto head = read_head(in, patch, part);
  if (!head) return head.error();
  if (auto ok = check_choice(in, patch); !ok) return ok.error();
  static const std::regex kCode("[0-9]{1,3}");
  if (!std::regex_match((*head)["Exit"], kCode)) {
    return wrong(patch, fmt::format("\"Exit: {}\" is no exit code", (*head)["Exit"]));
  }
  Bug bug{.name = (*head)["Name"],
          .sentence = (*head)["Bug"],
          .run = (*head)["Run"],
          .says = (*head)["Says"],
          .exit = std::stoi((*head)["Exit"]),
          .workloads = words((*head)["Workloads"]),
          .invariants = words((*head)["Invariants"]),
          .decisions = words((*head)["Decisions"])};
  if (bug.name != patch.stem()) {
    return wrong(patch, fmt::format("is named \"{}\" inside", bug.name));
  }
  if (bug.invariants == std::vector<std::string>{"none"}) bug.invariants.clear();
  return bug;
}

}  // namespace

Result<std::vector<Bug>> read_bugs(const std::string& folder, BugsOf part) {
  std::vector<std::filesystem::path> patches;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".patch") patches.push_back(entry.path());
  }
  std::sort(patches.begin(), patches.end());
  std::vector<Bug> bugs;
  for (const auto& patch : patches) {
    auto bug = read_bug(patch, part);
    if (!bug) return bug.error();
    bugs.push_back(*bug);
  }
  return bugs;
}

}  // namespace attnscope
