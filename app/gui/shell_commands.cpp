// The shell's commands: pictures, panels, layouts.
#include "app/gui/shell_commands.h"

#include <fmt/format.h>

#include "app/gui/command_group.h"
#include "app/gui/layouts.h"
#include "app/gui/shell.h"

namespace attnscope::gui {

void ShellCommands::add_file(Shell& shell) {
  const CommandGroup group(shell.ui_.commands, "File");
  group.add(
      "app.screenshot", "Picture ..", "Writes the next frame as a PNG file.", "",
      [&shell](std::string_view value) -> Result<void> {
        if (value.empty()) return usage_error("app.screenshot: names no file");
        shell.wanted_picture_ = {std::string(value), ""};
        return {};
      },
      "FILE");
  shell.ui_.commands.add({.id = "file.close",
                          .title = "Close",
                          .group = "File",
                          .help = "Closes the session or the capture that is shown.",
                          .shortcut = "Ctrl+W",
                          .run = act([&shell] { shell.ui_.bench.close(); }),
                          .enabled = [&shell] { return shell.ui_.bench.snapshot() != nullptr; },
                          .why_disabled = kNoSession});
  group.add("app.reset_graphics", "Restart graphics",
            "Makes the graphics context and all pictures anew, after a driver's hiccup.", "",
            act([&shell] { shell.reset_graphics_ = true; }));
}

// After all other commands, so that it is the last of its menu.
void ShellCommands::add_quit(Shell& shell) {
  const CommandGroup group(shell.ui_.commands, "File");
  group.add("app.quit", "Quit",
            "Saves settings and layout, and ends; asks where an edited scenario would be lost.",
            "Ctrl+Q", act([&shell] {
              std::vector<std::string> lost;
              for (const auto& panel : shell.panels_) {
                if (std::string what = panel->unsaved(shell.ui_); !what.empty()) {
                  lost.push_back(std::move(what));
                }
              }
              if (lost.empty()) {
                shell.wants_close_ = true;
              } else {
                shell.quit_.ask(std::move(lost));
              }
            }));
}

void ShellCommands::add_panels(Shell& shell) {
  const CommandGroup group(shell.ui_.commands, "View");
  for (const auto& panel : shell.panels_) {
    Panel* p = panel.get();
    group.add_switch(fmt::format("panel.{}", p->id()), p->title(),
                     fmt::format("Brings the panel \"{}\" to the front.", p->title()), "",
                     act([&shell, p] {
                       p->open = true;
                       shell.focus_panels_.emplace_back(p->id());
                     }),
                     [p] { return p->open; });
  }
  group.add(
      "panel.close", "Close panel ..", "Closes a panel by its id.", "",
      [&shell](std::string_view value) -> Result<void> {
        Panel* panel = shell.panel(value);
        if (panel == nullptr) {
          std::string ids;
          for (const auto& p : shell.panels_)
            ids += fmt::format("{}{}", ids.empty() ? "" : ", ", p->id());
          return usage_error(fmt::format("panel.close: no panel '{}'", value.substr(0, 40)),
                             "panels: " + ids);
        }
        panel->open = false;
        return {};
      },
      "PANEL");
  group.add("messages.dismiss", "Dismiss messages",
            "Takes away the messages that came forward; the log keeps them.", "", act([&shell] {
              shell.toasts_.clear();
              shell.messages_seen_ = shell.ui_.bench.messages().size();
            }));
}

void ShellCommands::add_layouts(Shell& shell) {
  const CommandGroup group(shell.ui_.commands, "Layout");
  for (const Layout& layout : layouts()) {
    group.add_switch(fmt::format("layout.{}", layout.id), layout.title, layout.help,
                     layout.shortcut, act([&shell, id = std::string(layout.id)] {
                       if (shell.layout_ == id) return;
                       shell.save();
                       shell.switch_layout(id, false);
                       shell.dirty_ = true;
                     }),
                     [&shell, id = layout.id] { return shell.layout_ == id; });
  }
  group.add("layout.reset", "Reset layout", "Puts every panel back where it was at first.",
            "Ctrl+Shift+F1", act([&shell] { shell.switch_layout(shell.layout_, true); }));
}

void register_shell_commands(Shell& shell) {
  CommandRegistry& registry = shell.ui().commands;
  add_session_commands(registry, shell.ui().bench);
  add_selection_commands(registry, shell.ui().bench);
  ShellCommands::add_file(shell);
  ShellCommands::add_panels(shell);
  ShellCommands::add_exports(shell);
  ShellCommands::add_layouts(shell);
  ShellCommands::add_looks(shell);
  ShellCommands::add_switches(shell);
  ShellCommands::add_history(shell);
  ShellCommands::add_keys(shell);
  ShellCommands::add_quit(shell);
  registry.add(
      {.id = "tour.seen",
       .title = "Tour seen",
       .group = "Help",
       .help = "The tour does not show itself again.",
       .run = act([&shell] { shell.ui().settings.tour_seen = true; }),  // no setting to undo
       .in_menu = false});
}

}  // namespace attnscope::gui
