// What panels show, as files and as text: pictures, tables, and the menu of a panel that offers
// them where the mouse is.
#include <fmt/format.h>
#include <imgui.h>
#include <imgui_internal.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "app/gui/command_group.h"
#include "app/gui/data_table.h"
#include "app/gui/layouts.h"
#include "app/gui/shell.h"
#include "app/gui/shell_commands.h"
#include "app/gui/widgets.h"
#include "app/text/folder_list.h"
#include "app/text/format.h"
#include "app/views/view_words.h"
#include "engine/io/json_file.h"

namespace attnscope::gui {
namespace {

struct Target {
  Panel* panel = nullptr;
  std::string file;
};

// PANEL:FILE, PANEL alone, FILE alone or nothing: without a panel that which has the focus.
Result<Target> target_of(Shell& shell, std::string_view value, const std::string& focused,
                         const char* id, const char* extension) {
  Target target;
  const auto colon = value.find(':');
  const std::string_view first = value.substr(0, colon);
  target.panel = shell.panel(first);
  if (target.panel != nullptr) {
    if (colon != std::string_view::npos) target.file = std::string(value.substr(colon + 1));
  } else {
    target.file = std::string(value);
    target.panel = shell.panel(focused);
  }
  if (target.panel == nullptr) {
    return usage_error(
        fmt::format("{}: no panel has the focus", id),
        fmt::format("write {0}=PANEL:FILE, such as {0}=error:error{1}", id, extension));
  }
  if (!target.panel->drawn) {
    return usage_error(fmt::format("{}: {} is not on the screen", id, target.panel->title()),
                       fmt::format("bring it to the front with panel.{}", target.panel->id()));
  }
  if (target.file.empty()) target.file = free_file_name(target.panel->id(), extension);
  return target;
}

// The table that a panel shows.
Result<const DataTable*> table_of(const Panel& panel) {
  const DataTable* table = drawn_table(window_name(panel).c_str());
  if (table != nullptr) return table;
  return usage_error(fmt::format("{} shows no table", panel.title()),
                     "a picture of it is written by panel.picture");
}

Result<void> save_table(Shell& shell, const std::string& focused, std::string_view value) {
  auto target = target_of(shell, value, focused, "panel.table", ".csv");
  if (!target) return target.error();
  const auto table = table_of(*target->panel);
  if (!table) return table.error();
  if (auto ok = write_text_file(target->file, (*table)->csv()); !ok) return ok;
  shell.ui().bench.say(Message::Kind::kInfo,
                       fmt::format("{} written to {}",
                                   plural((*table)->visible_rows(), "row", "rows"), target->file));
  return {};
}

std::string shown_source(const Workbench& bench) {
  if (bench.capture() != nullptr) return bench.capture()->path();
  const Scenario& scenario = bench.setup().scenario;
  return scenario.path.empty() || is_shipped(scenario.path) ? scenario.name : scenario.path;
}

// Kinds of numbers that a panel shows (NumberWords::id).
struct PanelNumbers {
  std::string_view panel;
  std::vector<const char*> numbers;
};
const std::vector<const char*>& numbers_of(const Panel& panel) {
  static const std::vector<PanelNumbers> kPanels = {
      {"tensor", {"element"}},
      {"error", {"budget", "error", "element"}},
      {"sink", {"sink", "lse"}},
      {"top_k", {"margin", "threshold"}},
      {"bytes", {"slot", "owner"}},
      {"window", {"slot", "owner"}},
      {"block_tables", {"owner"}},
      {"pool", {"owner"}},
      {"cache", {"owner"}},
      {"pipeline", {"time", "budget", "error"}},
      {"time", {"time"}},
      {"timeline", {"time", "budget", "error"}},
      {"selection", {"slot", "owner", "element"}},
  };
  static const std::vector<const char*> kNone;
  const auto found = std::ranges::find(kPanels, panel.id(), &PanelNumbers::panel);
  return found == kPanels.end() ? kNone : found->numbers;
}

// The lanes that the command line has to name.
std::vector<std::string> lanes_to_name(const Workbench& bench) {
  if (bench.capture() != nullptr) return {};
  std::vector<std::string> lanes = bench.setup().lanes;
  if (lanes == std::vector<std::string>{"cpu"}) lanes.clear();
  return lanes;
}

}  // namespace

void ShellCommands::add_exports(Shell& shell) {
  const auto of_panel = [&shell](const char* id, const char* title, const char* help,
                                 CommandAction run) {
    shell.ui_.commands.add({.id = id,
                            .title = title,
                            .group = "File",
                            .help = help,
                            .argument = "[PANEL:]FILE",
                            .run = std::move(run)});
  };
  of_panel("panel.picture", "Save picture of panel",
           "Writes a panel as a PNG file; without a name that which was clicked last.",
           [&shell](std::string_view value) -> Result<void> {
             auto target = target_of(shell, value, shell.focused_panel_, "panel.picture", ".png");
             if (!target) return target.error();
             shell.wanted_picture_ = {target->file, target->panel->id()};
             return {};
           });
  of_panel(
      "panel.table", "Save table of panel",
      "Writes the rows that a panel's table shows as a CSV file.",
      [&shell](std::string_view value) { return save_table(shell, shell.focused_panel_, value); });
  Workbench& bench = shell.ui_.bench;
  const CommandGroup view(
      shell.ui_.commands, "View", [&bench] { return bench.op() != nullptr; },
      "no op has run that could be looked at");
  view.add("copy.place", "Copy the place", "Step, layer, op and what is selected, as text.", "",
           act([&bench] {
             ImGui::SetClipboardText(
                 place_words(*bench.snapshot()->info, bench.cursor(), bench.selection()).c_str());
           }));
  view.add("copy.value", "Copy the value", "The picked element, its value and the reference's.",
           "Ctrl+Shift+C", [&bench](std::string_view) -> Result<void> {
             const TapCopy* tap = bench.selected_tap();
             const std::string text = tap == nullptr ? ""
                                                     : element_words(*bench.step(), *bench.op(),
                                                                     *tap, bench.selection());
             if (text.empty()) {
               return usage_error("copy.value: no element with a value is picked",
                                  "click one in Tensor or Error");
             }
             ImGui::SetClipboardText(text.c_str());
             return {};
           });
  view.add("copy.command", "Copy the command line",
           "What shows this place and selection again, for a shell.", "", act([&shell, &bench] {
             const auto commands = view_commands(bench.cursor(), bench.selection(), shell.layout_);
             ImGui::SetClipboardText(
                 view_command_line(shown_source(bench), lanes_to_name(bench), commands).c_str());
           }));
}

std::optional<ImVec4> Shell::rectangle_of(const std::string& id) {
  const Panel* of = panel(id);
  if (of == nullptr || !of->drawn) return std::nullopt;
  const ImGuiWindow* window = ImGui::FindWindowByName(window_name(*of).c_str());
  if (window == nullptr) return std::nullopt;
  const ImRect rect = window->Rect();
  return ImVec4(rect.Min.x, rect.Min.y, rect.Max.x, rect.Max.y);
}

// On a right click that nothing in the panel has taken.
void Shell::draw_panel_menu(Panel& panel) {
  constexpr const char* kMenu = "##panel menu";
  constexpr ImGuiPopupFlags kAny = ImGuiPopupFlags_AnyPopupId | ImGuiPopupFlags_AnyPopupLevel;
  if (ImGui::IsWindowHovered(ImGuiHoveredFlags_ChildWindows) &&
      ImGui::IsMouseReleased(ImGuiMouseButton_Right) && !ImGui::IsPopupOpen("", kAny)) {
    ImGui::OpenPopup(kMenu);
  }
  if (!ImGui::BeginPopup(kMenu)) return;
  for (const char* id : {"copy.value", "copy.place", "copy.command", "note.bookmark"}) {
    command_menu_item(ui_, id);
  }
  ImGui::Separator();
  for (const char* number : numbers_of(panel)) {
    command_menu_item(ui_, std::string("history.") + number);
  }
  if (!numbers_of(panel).empty()) ImGui::Separator();
  if (drawn_table(window_name(panel).c_str()) != nullptr) {
    if (ImGui::MenuItem("Save table as CSV")) ui_.run(fmt::format("panel.table={}", panel.id()));
  }
  if (ImGui::MenuItem("Save picture")) ui_.run(fmt::format("panel.picture={}", panel.id()));
  ImGui::EndPopup();
}

}  // namespace attnscope::gui
