#include "app/gui/command_group.h"

#include <fmt/format.h>

#include <charconv>

namespace attnscope::gui {

CommandGroup::CommandGroup(CommandRegistry& registry, std::string name,
                           std::function<bool()> enabled, std::string why_disabled)
    : registry_(registry),
      name_(std::move(name)),
      enabled_(std::move(enabled)),
      why_disabled_(std::move(why_disabled)) {}

void CommandGroup::add(const char* id, const char* title, const char* help, const char* shortcut,
                       CommandAction run, const char* argument) const {
  registry_.add({.id = id,
                 .title = title,
                 .group = name_,
                 .help = help,
                 .shortcut = shortcut,
                 .argument = argument,
                 .run = std::move(run),
                 .enabled = enabled_,
                 .why_disabled = why_disabled_,
                 .in_menu = *argument == '\0'});
}

void CommandGroup::add_switch(std::string id, std::string title, std::string help,
                              std::string shortcut, CommandAction run,
                              std::function<bool()> checked) const {
  registry_.add({.id = std::move(id),
                 .title = std::move(title),
                 .group = name_,
                 .help = std::move(help),
                 .shortcut = std::move(shortcut),
                 .run = std::move(run),
                 .enabled = enabled_,
                 .checked = std::move(checked),
                 .why_disabled = why_disabled_});
}

Result<std::int64_t> whole_value(std::string_view text, const char* what, std::int64_t low,
                                 std::int64_t high) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    return usage_error(fmt::format("{}: '{}' is not a whole number from {} to {}", what,
                                   text.substr(0, 40), low, high));
  }
  return value;
}

Result<float> number_value(std::string_view text, const char* what, float low, float high) {
  float value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= low) ||
      !(value <= high)) {
    return usage_error(
        fmt::format("{}: '{}' is not a number from {} to {}", what, text.substr(0, 40), low, high));
  }
  return value;
}

}  // namespace attnscope::gui
