#include "app/workbench/command_registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>

#include "app/text/say.h"
#include "app/text/text.h"
#include "app/workbench/shortcut_keys.h"
#include "engine/io/nearest.h"

namespace attnscope {
namespace {

[[noreturn]] void programmers_error(const std::string& what) {
  say(stderr, "attnscope: {}\n", what);
  std::abort();
}

bool starts_word(std::string_view text, std::size_t i) {
  if (i == 0) return true;
  const char before = text[i - 1];
  return before == ' ' || before == '.' || before == '_' || before == '-' || before == '/' ||
         before == ':';
}

// Best score of `word` (lower case) as a subsequence of `text`; nullopt when it is none. A letter
// counts 1, at a word's start 8 more, right after the letter matched before 5 more.
std::optional<int> subsequence_score(std::string_view word, std::string_view text) {
  constexpr int kNone = -1'000'000;
  if (word.size() > text.size()) return std::nullopt;
  // best[j]: of the word's letters so far with the last one at text[j].
  std::vector<int> best(text.size(), kNone), next(text.size());
  for (std::size_t i = 0; i < word.size(); ++i) {
    int reached = i == 0 ? 0 : kNone;  // best end of the letters before, anywhere before j
    for (std::size_t j = 0; j < text.size(); ++j) {
      next[j] = kNone;
      if (lower(text[j]) == word[i]) {
        const int run = i > 0 && j > 0 && best[j - 1] > kNone ? best[j - 1] + 5 : kNone;
        const int from = std::max(reached, run);
        if (from > kNone) next[j] = from + 1 + (starts_word(text, j) ? 8 : 0);
      }
      if (i > 0) reached = std::max(reached, best[j]);
    }
    std::swap(best, next);
  }
  const int score = *std::max_element(best.begin(), best.end());
  if (score <= kNone) return std::nullopt;
  return score;
}

// Every word of the query must be a subsequence of title or id; higher is better.
std::optional<int> command_score(const std::vector<std::string>& words, const std::string& query,
                                 const Command& command) {
  if (command.id == query) return 1'000'000;
  int score = 0;
  for (const std::string& word : words) {
    const auto title = subsequence_score(word, command.title);
    const auto id = subsequence_score(word, command.id);
    if (!title && !id) return std::nullopt;
    score += 10 * std::max(title.value_or(0), id.value_or(0));
  }
  if (command.id.starts_with(query) || lower(command.title).starts_with(query)) score += 200;
  // Of equals the shorter one: more of it was meant.
  return score - static_cast<int>(std::min<std::size_t>(command.title.size(), 60) / 6);
}

}  // namespace

void CommandRegistry::add(Command command) {
  if (!command.shortcut.empty()) {
    const auto text = normalise_shortcut(command.shortcut);
    if (!text) programmers_error(command.id + ": " + text.error().text());
    command.shortcut = *text;
  }
  if (!command.run) programmers_error("command \"" + command.id + "\" does nothing");
  if (!by_id_.emplace(command.id, commands_.size()).second) {
    programmers_error("command \"" + command.id + "\" was added twice");
  }
  commands_.push_back(std::move(command));
  ++shortcuts_version_;
}

const Command* CommandRegistry::find(std::string_view id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &commands_[it->second];
}

Result<const Command*> CommandRegistry::find_named(std::string_view id_and_value) const {
  const std::string_view id = trimmed(id_and_value.substr(0, id_and_value.find('=')));
  if (const Command* command = find(id)) return command;
  std::vector<std::string> ids;
  ids.reserve(commands_.size());
  for (const Command& c : commands_) ids.push_back(c.id);
  const auto near = nearest_names(id, ids);
  return usage_error(fmt::format("there is no command \"{}\"", shortened(id)),
                     near.empty() ? "the palette (Ctrl+P) lists all commands"
                                  : fmt::format("did you mean {}?", fmt::join(near, ", ")));
}

Result<void> CommandRegistry::run(std::string_view id_and_value) {
  ++runs_;
  const std::size_t equals = id_and_value.find('=');
  const bool has_value = equals != std::string_view::npos;
  const std::string value(has_value ? trimmed(id_and_value.substr(equals + 1)) : "");
  const auto named = find_named(id_and_value);
  if (!named) return named.error();
  const Command* command = *named;
  if (has_value && command->argument.empty()) {
    return usage_error(
        fmt::format("{} takes no value, \"{}\" was given", command->id, shortened(value)),
        fmt::format("write {} alone", command->id));
  }
  if (command->enabled && !command->enabled()) {
    return usage_error(fmt::format("{} ({}) cannot run now{}{}", command->id, command->title,
                                   command->why_disabled.empty() ? "" : ": ",
                                   command->why_disabled));
  }
  // The command may add others, which moves it.
  const std::string name = command->id;
  const auto action = command->run;
  try {
    if (auto ok = action(value); !ok) return ok.error();
  } catch (const std::exception& e) {
    return internal_error(fmt::format("{} failed: {}", name, e.what()));
  }
  if (on_run) on_run(name);
  return {};
}

std::vector<const Command*> CommandRegistry::search(std::string_view query) const {
  constexpr std::size_t kLongest = 100;
  const std::string wanted = lower(trimmed(query.substr(0, kLongest)));
  std::vector<std::string> words;
  for (std::size_t at = 0; at < wanted.size();) {
    const std::size_t end = std::min(wanted.find(' ', at), wanted.size());
    if (end > at) words.push_back(wanted.substr(at, end - at));
    at = end + 1;
  }
  std::vector<std::pair<int, const Command*>> found;
  for (const Command& command : commands_) {
    const auto score = words.empty() ? 0 : command_score(words, wanted, command);
    if (score) found.emplace_back(*score, &command);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<const Command*> out;
  out.reserve(found.size());
  for (const auto& [score, command] : found) out.push_back(command);
  return out;
}

std::string CommandRegistry::shortcut(const std::string& id) const {
  if (const auto user = user_shortcuts_.find(id); user != user_shortcuts_.end()) {
    return user->second;
  }
  const Command* command = find(id);
  if (command == nullptr || command->shortcut.empty()) return {};
  // What the user gave to another command is no longer this one's.
  for (const auto& [other, text] : user_shortcuts_) {
    if (text == command->shortcut && find(other) != nullptr) return {};
  }
  return command->shortcut;
}

Result<void> CommandRegistry::set_shortcut(const std::string& id, const std::string& text) {
  const Command* command = find(id);
  if (command == nullptr) {
    return bad_input(
        fmt::format("there is no command \"{}\" to give a shortcut to", shortened(id)));
  }
  std::string wanted;
  if (!trimmed(text).empty()) {
    auto normal = normalise_shortcut(text);
    if (!normal) return normal.error();
    wanted = *std::move(normal);
    for (const Command& other : commands_) {
      if (other.id == id || shortcut(other.id) != wanted) continue;
      return bad_input(fmt::format("{} already belongs to {} ({})", wanted, other.id, other.title),
                       fmt::format("remove it there first, or choose another for {}", id));
    }
  }
  ++shortcuts_version_;
  if (wanted == command->shortcut) {
    user_shortcuts_.erase(id);
  } else {
    user_shortcuts_[id] = wanted;
  }
  return {};
}

}  // namespace attnscope
