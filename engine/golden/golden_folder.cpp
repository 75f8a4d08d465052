#include "engine/golden/golden_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "engine/io/json_file.h"
#include "engine/io/json_object.h"
#include "engine/io/nearest.h"
#include "engine/io/shell_word.h"

namespace attnscope {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestGolden = 4 << 20;
constexpr std::size_t kLargestValues = std::size_t{1}
                                       << 30;  // of a large golden, and received ones
constexpr std::size_t kLongestReason = 200;

Result<void> remove_file(const std::string& path) {
  std::error_code code;
  if (!fs::remove(path, code) && code) {
    return bad_input(fmt::format("{}: cannot be removed: {}", path, code.message()),
                     "the folder must be writable");
  }
  return {};
}

Result<void> check_reason(const std::string& reason) {
  if (reason.find_first_not_of(" \t") == std::string::npos) {
    return usage_error("accepting needs a reason",
                       "--reason TEXT says in one line why the new values are right");
  }
  const auto breaks = std::ranges::count(reason, '\n');
  if (breaks > 0) {
    return usage_error(fmt::format("the reason has {} lines", breaks + 1), "say it in one");
  }
  if (reason.size() > kLongestReason) {
    return usage_error(fmt::format("the reason has {} characters, at most {} are kept",
                                   reason.size(), kLongestReason),
                       "say it shorter");
  }
  return {};
}

}  // namespace

Result<GoldenFolder> GoldenFolder::open(const std::string& path) {
  GoldenFolder folder;
  folder.path_ = path;
  std::error_code code;
  if (!fs::is_directory(path, code)) {
    return bad_input(fmt::format("{}: is no folder of goldens", path),
                     "name one with --goldens FOLDER, or create it");
  }
  for (const fs::directory_entry& item : fs::directory_iterator(path, code)) {
    const std::string file = item.path().filename().string();
    std::error_code unknown;  // of a link that leads nowhere, say
    if (!item.is_regular_file(unknown) || !file.ends_with(".json")) continue;
    const auto take = [&](const char* suffix, bool GoldenEntry::*has) {
      if (!file.ends_with(suffix)) return false;
      folder.entries_[file.substr(0, file.size() - std::string(suffix).size())].*has = true;
      return true;
    };
    if (!take(kSpecSuffix, &GoldenEntry::defined) &&
        !take(kAcceptedSuffix, &GoldenEntry::accepted) &&
        !take(kReceivedSuffix, &GoldenEntry::received)) {
      folder.others_.push_back(file);
    }
  }
  if (code) return bad_input(fmt::format("{}: cannot be listed: {}", path, code.message()));
  std::ranges::sort(folder.others_);
  return folder;
}

std::string GoldenFolder::words() const { return " --goldens " + shell_word(path_); }

std::vector<std::string> GoldenFolder::defined() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) {
    if (entry.defined) names.push_back(name);
  }
  return names;
}

std::vector<std::string> GoldenFolder::pending() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) {
    if (entry.defined && entry.received) names.push_back(name);
  }
  return names;
}

std::vector<GoldenOrphan> GoldenFolder::orphans() const {
  std::vector<GoldenOrphan> out;
  std::set<std::string> scenarios;
  for (const auto& [name, entry] : entries_) {
    if (entry.defined) {
      auto one = spec(name);
      if (!one) continue;
      for (const std::string* file : {&one->scenario, &one->saved_case}) {
        scenarios.insert(*file);
        scenarios.insert(*file + ".json");
      }
      continue;
    }
    const std::string why = fmt::format("there is no {}{}", name, kSpecSuffix);
    if (entry.accepted) out.push_back({name + kAcceptedSuffix, why, true});
    if (entry.received) out.push_back({name + kReceivedSuffix, why, true});
  }
  for (const std::string& file : others_) {
    if (!scenarios.contains(file)) out.push_back({file, "no golden names it", false});
  }
  return out;
}

Result<std::vector<std::string>> GoldenFolder::select(const std::vector<std::string>& names) const {
  if (names.empty()) return defined();
  const std::vector<std::string> all = defined();
  const auto plain = [](std::string name) {
    std::ranges::replace(name, '-', '_');
    return name;
  };
  std::vector<std::string> chosen;
  for (const std::string& name : names) {
    auto it = std::ranges::find(all, name);
    // Models and scenarios have names with '-', of which goldens make '_'.
    if (it == all.end()) it = std::ranges::find(all, plain(name), plain);
    if (it == all.end()) {
      return usage_error(fmt::format("there is no golden '{}' in {}", name, path_),
                         did_you_mean(name, all) + "goldens: " + join(all));
    }
    chosen.push_back(*it);
  }
  return chosen;
}

std::string GoldenFolder::file(const std::string& name, const char* suffix) const {
  return (fs::path(path_) / (name + suffix)).string();
}

Result<GoldenSpec> GoldenFolder::spec(const std::string& name) const {
  const std::string path = file(name, kSpecSuffix);
  if (!is_golden_name(name)) {
    return bad_input(fmt::format("{}: '{}' is no name of a golden", path, name),
                     "names are of letters, digits, '_', '-' and inner dots");
  }
  auto text = read_text_file(path, kLargestGolden);
  if (!text) return text.error();
  return parse_golden_spec(*text, path);
}

Result<GoldenValues> GoldenFolder::values(const std::string& name, const char* suffix) const {
  const std::string path = file(name, suffix);
  const bool accepted = std::string_view(suffix) == kAcceptedSuffix;
  auto text = read_text_file(path, accepted ? kLargestGolden : kLargestValues);
  if (!text) return text.error();
  if (accepted && is_large_golden(*text)) {
    auto large = this->large(name);
    if (!large) return large.error();
    return large_values(**large);
  }
  auto values = parse_golden_values(*text, path);
  if (values && values->name != name) {
    return bad_input(fmt::format("{}: holds the values of '{}'", path, values->name),
                     "a golden's files share its name: rename it, or run and accept again");
  }
  return values;
}

Result<std::optional<LargeGolden>> GoldenFolder::large(const std::string& name) const {
  const std::string path = file(name, kAcceptedSuffix);
  auto text = read_text_file(path, kLargestGolden);
  if (!text) return text.error();
  if (!is_large_golden(*text)) return std::optional<LargeGolden>();
  auto large = parse_large_golden(*text, path);
  if (!large) return large.error();
  if (large->values.name != name) {
    return bad_input(fmt::format("{}: holds the values of '{}'", path, large->values.name),
                     "a golden's files share its name: rename it, or run and accept again");
  }
  return std::optional<LargeGolden>(std::move(*large));
}

Result<GoldenValues> GoldenFolder::large_values(const LargeGolden& large) const {
  for (const bool made : {false, true}) {
    const fs::path path =
        fs::path(large_folder_) / (made ? large.made_file() : large.accepted_file());
    std::error_code code;
    if (large_folder_.empty() || !fs::is_regular_file(path, code)) continue;
    auto text = read_text_file(path.string(), kLargestValues);
    if (!text) return text.error();
    auto values = parse_golden_values(*text, path.string());
    if (!values) return values.error();
    const bool right =
        made ? large.is_of(*values) : make_large_golden(*values, *text).digest == large.digest;
    if (right) return values;
    return bad_input(fmt::format("{}: does not hold the values of its golden", path.string()),
                     "it is damaged: remove it, and run the golden to make them anew");
  }
  return large.values;
}

Result<void> GoldenFolder::write_large(const std::string& file, const std::string& text) const {
  std::error_code code;
  fs::create_directories(large_folder_, code);
  if (code) {
    return bad_input(fmt::format("{}: cannot be created: {}", large_folder_, code.message()),
                     "name a folder for large goldens with --large");
  }
  return write_text_file((fs::path(large_folder_) / file).string(), text);
}

Result<void> GoldenFolder::keep_made(const LargeGolden& large, const GoldenValues& values) {
  if (large_folder_.empty()) return {};
  GoldenValues made = values;
  made.findings.clear();
  made.origin.reason = "made anew from its scenario; accepted: " + large.values.origin.reason;
  return write_large(large.made_file(), golden_values_text(made));
}

Result<void> GoldenFolder::write_received(const GoldenValues& values) {
  if (auto ok = write_text_file(file(values.name, kReceivedSuffix), golden_values_text(values));
      !ok) {
    return ok;
  }
  entries_[values.name].received = true;
  return {};
}

Result<void> GoldenFolder::remove_received(const std::string& name) {
  GoldenEntry& entry = entries_[name];
  if (!entry.received) return {};
  entry.received = false;
  return remove_file(file(name, kReceivedSuffix));
}

Result<void> GoldenFolder::accept(const std::string& name, const GoldenOrigin& origin) {
  if (auto ok = check_reason(origin.reason); !ok) return ok;
  const auto it = entries_.find(name);
  if (it == entries_.end() || !it->second.received) {
    return bad_input(fmt::format("{}: nothing was received that could be accepted", name),
                     fmt::format("run it first: attnscope golden run {}{}", name, words()));
  }
  auto definition = spec(name);
  if (!definition) return definition.error();
  auto received = values(name, kReceivedSuffix);
  if (!received) return received.error();
  if (received->definition != definition->digest) {
    return bad_input(fmt::format("{}: was received before its definition changed", name),
                     fmt::format("run it again: attnscope golden run {}{}", name, words()));
  }
  // Where it ran is where it was received; who says yes, and to which state, is known now.
  received->origin.reason = origin.reason;
  received->origin.commit = origin.commit;
  received->findings.clear();
  std::string text = golden_values_text(*received);
  if (text.size() > kSmallGolden) {
    const LargeGolden large = make_large_golden(*received, text);
    std::string record = large_golden_text(large);
    // Without integers nothing would be left to hold a run elsewhere to.
    if (large_folder_.empty() || record.size() > kSmallGolden || large.integer_taps == 0) {
      return bad_input(
          fmt::format("{}: takes {} bytes, a golden may take {}", name, text.size(), kSmallGolden),
          "keep fewer taps, steps, rows or samples; a large golden needs a tap of integers");
    }
    if (auto ok = write_large(large.accepted_file(), text); !ok) return ok;
    text = std::move(record);
  }
  if (auto ok = write_text_file(file(name, kAcceptedSuffix), text); !ok) return ok;
  it->second.accepted = true;
  return remove_received(name);
}

Result<std::vector<std::string>> GoldenFolder::prune() {
  std::vector<std::string> removed;
  for (const GoldenOrphan& orphan : orphans()) {
    if (!orphan.removable) continue;
    if (auto ok = remove_file((fs::path(path_) / orphan.file).string()); !ok) return ok.error();
    removed.push_back(orphan.file);
  }
  std::erase_if(entries_, [](const auto& item) { return !item.second.defined; });
  return removed;
}

}  // namespace attnscope
