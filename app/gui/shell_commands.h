// The commands of the screen around the panels. Those of the shell itself are members of a class,
// because they change what only the shell may.
#pragma once

#include "app/gui/command_group.h"
#include "app/workbench/settings.h"
#include "app/workbench/workbench.h"

namespace attnscope::gui {

class Shell;

inline constexpr const char* kNoSession = "no session is open; open a scenario first";

void add_session_commands(CommandRegistry& registry, Workbench& bench);
void add_selection_commands(CommandRegistry& registry, Workbench& bench);

struct ShellCommands {
  static void add_file(Shell& shell);  // picture, graphics, close
  static void add_quit(Shell& shell);
  static void add_panels(Shell& shell);    // bring to the front, close
  static void add_exports(Shell& shell);   // what panels show, as files and text
  static void add_layouts(Shell& shell);   // one each, reset
  static void add_looks(Shell& shell);     // theme, size, colours
  static void add_switches(Shell& shell);  // settings that are on or off
  static void add_history(Shell& shell);   // undo, redo, reset, memory
  static void add_keys(Shell& shell);      // shortcuts

 private:
  // A command that changes settings; can be undone.
  static CommandAction change(Shell& shell, std::function<void(Settings&)> set);
};

}  // namespace attnscope::gui
