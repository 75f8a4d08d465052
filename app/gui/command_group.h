// What files of commands share: a group of commands with one condition, and values that are read
// from text.
//
//   const CommandGroup group(registry, "Session", [&] { return open(); }, "no session is open");
//   group.add("op.forward", "Next op", "Goes to the next op.", "Right", act([&] { .. }));
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "app/workbench/command_registry.h"

namespace attnscope::gui {

using CommandAction = std::function<Result<void>(std::string_view value)>;

class CommandGroup {
 public:
  // An empty condition = always.
  CommandGroup(CommandRegistry& registry, std::string name, std::function<bool()> enabled = {},
               std::string why_disabled = {});
  // With an argument it stays out of the menus: there a value cannot be given.
  void add(const char* id, const char* title, const char* help, const char* shortcut,
           CommandAction run, const char* argument = "") const;
  // A command that is on or off.
  void add_switch(std::string id, std::string title, std::string help, std::string shortcut,
                  CommandAction run, std::function<bool()> checked) const;

 private:
  CommandRegistry& registry_;
  std::string name_;
  std::function<bool()> enabled_;
  std::string why_disabled_;
};

// Numbers from low to high. Errors: AS_USAGE naming `what` and the range.
Result<std::int64_t> whole_value(std::string_view text, const char* what, std::int64_t low,
                                 std::int64_t high);
Result<float> number_value(std::string_view text, const char* what, float low, float high);

// An action without a value that cannot fail.
template <class F>
CommandAction act(F action) {
  return [action](std::string_view) -> Result<void> {
    action();
    return {};
  };
}

}  // namespace attnscope::gui
