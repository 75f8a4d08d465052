// Every action of the app, once: a command with a stable id. Menu, palette, shortcuts, the command
// line (`attnscope gui --do id,id=value`) and tests run the same ids.
//
//   registry.add({.id = "step.forward", .title = "Next step", .group = "Session",
//                 .shortcut = "Ctrl+Right", .run = [&](std::string_view) { ...; return ok; }});
//   registry.run("cursor.goto=7/2/indexer_topk");
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/params/result.h"

namespace attnscope {

struct Command {
  std::string id;         // "step.forward": lower case, dots and underscores
  std::string title;      // "Next step": what menu and palette show
  std::string group;      // menu it stands in: "Session", "View", "Layout", "Selection", "Help", ..
  std::string help = {};  // one sentence; tooltips and the palette show it
  std::string shortcut = {};  // default: "Ctrl+Shift+P", "F1", "Left", "Space"; empty = none
  std::string argument = {};  // what a value means: "STEP/LAYER/OP"; empty = takes none
  std::function<Result<void>(std::string_view value)> run;
  std::function<bool()> enabled = {};  // empty = always
  std::function<bool()> checked = {};  // empty = not a switch
  std::string why_disabled = {};       // said when it is run or hovered while disabled
  bool in_menu = true;
};

class CommandRegistry {
 public:
  // The id must be new (a programmer's error otherwise).
  void add(Command command);
  const Command* find(std::string_view id) const;
  // Of "id" or "id=value". Unknown id: AS_USAGE with the nearest ids.
  Result<const Command*> find_named(std::string_view id_and_value) const;
  const std::vector<Command>& all() const { return commands_; }  // in order of registration

  // "id" or "id=value". Unknown id: AS_USAGE with the nearest ids; disabled: AS_USAGE with why.
  Result<void> run(std::string_view id_and_value);
  // How many there were, of those that failed too.
  std::uint64_t runs() const { return runs_; }
  // Called after each run that succeeded, with the id; tests and the palette's history use it.
  std::function<void(const std::string& id)> on_run;

  // Commands that match a query as a subsequence of title or id, best first; all for "".
  std::vector<const Command*> search(std::string_view query) const;

  // The shortcut in force: the user's, else the default.
  std::string shortcut(const std::string& id) const;
  // "" removes it. AS_BAD_INPUT for a text that is no key combination, or one already taken (says
  // by which command).
  Result<void> set_shortcut(const std::string& id, const std::string& text);
  void reset_shortcuts() { set_user_shortcuts({}); }
  // Grows whenever a shortcut may have changed.
  std::uint64_t shortcuts_version() const { return shortcuts_version_; }
  const std::map<std::string, std::string>& user_shortcuts() const { return user_shortcuts_; }
  void set_user_shortcuts(std::map<std::string, std::string> map) {
    user_shortcuts_ = std::move(map);
    ++shortcuts_version_;
  }

 private:
  std::vector<Command> commands_;
  std::map<std::string, std::size_t, std::less<>> by_id_;
  std::map<std::string, std::string> user_shortcuts_;
  std::uint64_t shortcuts_version_ = 0, runs_ = 0;
};

// "ctrl + right" -> "Ctrl+Right": canonical order Ctrl+Alt+Shift+KEY. AS_BAD_INPUT when it is none.
Result<std::string> normalise_shortcut(std::string_view text);

}  // namespace attnscope
