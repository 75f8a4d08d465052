// The shell's commands that change settings and shortcuts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/gui/command_group.h"
#include "app/gui/shell.h"
#include "app/gui/shell_commands.h"
#include "app/gui/theme.h"

namespace attnscope::gui {

CommandAction ShellCommands::change(Shell& shell, std::function<void(Settings&)> set) {
  return act([&shell, set = std::move(set)] { shell.change_settings(set); });
}

void ShellCommands::add_looks(Shell& shell) {
  const CommandGroup group(shell.ui_.commands, "View");
  group.add("settings.theme_toggle", "Light or dark", "Switches between light and dark.", "Ctrl+L",
            change(shell, [](Settings& s) { s.theme = theme().dark ? "light" : "dark"; }));
  group.add(
      "settings.theme", "Theme ..", "Takes a theme by name or file.", "",
      [&shell](std::string_view value) -> Result<void> {
        auto wanted = load_theme(std::string(value));
        if (!wanted) return wanted.error();
        shell.change_settings([&](Settings& s) { s.theme = std::string(value); });
        return {};
      },
      "NAME or FILE");
  group.add("settings.scale_up", "Larger", "Larger text and spacing.", "Ctrl+Equal",
            change(shell,
                   [](Settings& s) { s.scale = std::min(3.0f, std::round(s.scale * 8 + 1) / 8); }));
  group.add("settings.scale_down", "Smaller", "Smaller text and spacing.", "Ctrl+Minus",
            change(shell, [](Settings& s) {
              s.scale = std::max(0.75f, std::round(s.scale * 8 - 1) / 8);
            }));
  group.add(
      "settings.scale", "Scale ..", "Size of text and spacing, 1 = as made.", "",
      [&shell](std::string_view value) -> Result<void> {
        auto scale = number_value(value, "settings.scale", 0.75f, 3);
        if (!scale) return scale.error();
        shell.change_settings([&](Settings& s) { s.scale = *scale; });
        return {};
      },
      "0.75 to 3");
  group.add(
      "settings.colour_map", "Colours of values ..", "viridis or grey.", "",
      [&shell](std::string_view value) -> Result<void> {
        if (value != "viridis" && value != "grey") {
          return usage_error(
              fmt::format("settings.colour_map: '{}' is unknown", value.substr(0, 40)),
              "allowed: viridis, grey");
        }
        shell.change_settings([&](Settings& s) { s.colour_map = std::string(value); });
        return {};
      },
      "viridis or grey");
}

void ShellCommands::add_switches(Shell& shell) {
  const CommandGroup group(shell.ui_.commands, "View");
  group.add_switch("settings.animations", "Animations", "Motion where it explains something.", "",
                   change(shell, [](Settings& s) { s.animations = !s.animations; }),
                   [&shell] { return shell.ui_.settings.animations; });
  group.add_switch("settings.whole_sentences", "Whole sentences",
                   "Panels show all of their sentence, not one line of it.", "",
                   change(shell, [](Settings& s) { s.whole_sentences = !s.whole_sentences; }),
                   [&shell] { return shell.ui_.settings.whole_sentences; });
  group.add_switch("pool.free_order", "Order of the free list",
                   "Free blocks of the pool map show when their turn comes.", "",
                   change(shell, [](Settings& s) { s.free_list_order = !s.free_list_order; }),
                   [&shell] { return shell.ui_.settings.free_list_order; });
}

void ShellCommands::add_history(Shell& shell) {
  const CommandGroup group(shell.ui_.commands, "View");
  group.add(
      "settings.trace_budget", "Memory for traces ..",
      "MiB kept for the tensors of past steps; takes effect with the next session.", "",
      [&shell](std::string_view value) -> Result<void> {
        auto mb = whole_value(value, "settings.trace_budget", 16, 1 << 20);
        if (!mb) return mb.error();
        shell.change_settings([&](Settings& s) { s.trace_budget_mb = *mb; });
        return {};
      },
      "MiB");
  group.add(
      "settings.checkpoint_budget", "Memory for rewind points ..",
      "MiB kept for going back: the more, the fewer steps are computed again.", "",
      [&shell](std::string_view value) -> Result<void> {
        auto mb = whole_value(value, "settings.checkpoint_budget", 16, 1 << 20);
        if (!mb) return mb.error();
        shell.change_settings([&](Settings& s) { s.rewind_budget_mb = *mb; });
        return {};
      },
      "MiB");
  group.add(
      "settings.kept_events", "Block events kept ..",
      "How many events of blocks outlive the tensors of their steps; takes effect with the next "
      "session.",
      "",
      [&shell](std::string_view value) -> Result<void> {
        auto events = whole_value(value, "settings.kept_events", 1000, 1 << 24);
        if (!events) return events.error();
        shell.change_settings([&](Settings& s) { s.kept_events = *events; });
        return {};
      },
      "events");
  group.add(
      "settings.invariants", "Invariants ..",
      "What is checked around every step: off, step (what it touched) or call (all of the state "
      "around every call of the block manager).",
      "",
      [&shell](std::string_view value) -> Result<void> {
        auto level = parse_invariants(value);
        if (!level) return level.error();
        shell.change_settings([&](Settings& s) { s.invariants = *level; });
        return {};
      },
      "off, step or call");
  shell.ui_.commands.add(
      {.id = "settings.undo",
       .title = "Undo setting",
       .group = "View",
       .help = "Takes the last change of a setting back.",
       .shortcut = "Ctrl+Z",
       .run = act([&shell] { shell.restore_settings(shell.undo_.undo(shell.ui_.settings)); }),
       .enabled = [&shell] { return shell.undo_.can_undo(); },
       .why_disabled = "no setting was changed"});
  shell.ui_.commands.add(
      {.id = "settings.redo",
       .title = "Redo setting",
       .group = "View",
       .help = "Makes the change that was taken back again.",
       .shortcut = "Ctrl+Shift+Z",
       .run = act([&shell] { shell.restore_settings(shell.undo_.redo(shell.ui_.settings)); }),
       .enabled = [&shell] { return shell.undo_.can_redo(); },
       .why_disabled = "nothing was taken back"});
  group.add("settings.reset", "Reset settings", "All settings as at first; can be undone.", "",
            change(shell, [](Settings& s) {
              Settings fresh;
              keep_state(s, fresh);
              s = fresh;
            }));
}

void ShellCommands::add_keys(Shell& shell) {
  const CommandGroup group(shell.ui_.commands, "View");
  group.add(
      "shortcut.set", "Shortcut ..", "Gives a command a key: ID:KEYS, or ID: for none.", "",
      [&shell](std::string_view value) -> Result<void> {
        const auto colon = value.find(':');
        if (colon == std::string_view::npos) {
          return usage_error("shortcut.set: no ':'", "write ID:KEYS, such as op.forward:Ctrl+N");
        }
        auto& registry = shell.ui_.commands;
        const std::string id(value.substr(0, colon));
        if (auto ok = registry.set_shortcut(id, std::string(value.substr(colon + 1))); !ok)
          return ok;
        shell.change_settings([&](Settings& s) { s.shortcuts = registry.user_shortcuts(); });
        return {};
      },
      "ID:KEYS");
  group.add("shortcut.reset", "Reset shortcuts", "All shortcuts as at first.", "", act([&shell] {
              shell.ui_.commands.reset_shortcuts();
              shell.change_settings([](Settings& s) { s.shortcuts.clear(); });
            }));
}

}  // namespace attnscope::gui
