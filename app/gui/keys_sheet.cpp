#include "app/gui/keys_sheet.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/gui/text_input.h"
#include "app/gui/widgets.h"
#include "app/text/text.h"

namespace attnscope::gui {
namespace {

// "Ctrl+RightBracket" as it stands on the keyboard.
std::string on_keyboard(std::string keys) {
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"RightBracket", "]"}, {"LeftBracket", "["},     {"Comma", ","}, {"Period", "."},
      {"Slash", "/"},        {"Minus", "-"},           {"Equal", "="}, {"Backslash", "\\"},
      {"Semicolon", ";"},    {"Apostrophe", "'"},      {"Grave", "`"}, {"Escape", "Esc"},
      {"PageUp", "Page up"}, {"PageDown", "Page down"}};
  for (const auto& [name, shown] : kNames) {
    if (!keys.ends_with(name)) continue;
    keys.resize(keys.size() - std::string_view(name).size());
    return keys + shown;
  }
  return keys;
}

void keycap(const std::string& text) {
  const ImVec2 size = ImGui::CalcTextSize(text.c_str());
  const ImVec2 at = ImGui::GetCursorScreenPos();
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->AddRectFilled({at.x, at.y - px(1)}, {at.x + size.x + px(10), at.y + size.y + px(1)},
                      theme().grid, px(3));
  list->AddText({at.x + px(5), at.y}, theme().text, text.c_str());
  ImGui::Dummy({size.x + px(10), size.y});
}

}  // namespace

void KeysSheet::register_commands(Ui& ui) {
  ui.commands.add({.id = "help.keys",
                   .title = "Keys",
                   .group = "Help",
                   .help = "All shortcuts on one sheet.",
                   .shortcut = "Shift+Slash",
                   .run = [this](std::string_view) -> Result<void> {
                     dialog_.open();
                     return {};
                   }});
}

// With a filter, commands without keys are found too: the answer may be that there are none.
void KeysSheet::refresh(const Ui& ui) {
  const std::string wanted = lower(trimmed(filter_));
  groups_.clear();
  for (const Command& command : ui.commands.all()) {
    const std::string keys = ui.commands.shortcut(command.id);
    if (wanted.empty() ? keys.empty()
                       : lower(command.title).find(wanted) == std::string::npos &&
                             lower(keys).find(wanted) == std::string::npos) {
      continue;
    }
    auto at = std::ranges::find(groups_, command.group, &Group::name);
    if (at == groups_.end()) at = groups_.insert(groups_.end(), {command.group, {}});
    at->lines.push_back({command.title, on_keyboard(keys)});
  }
  if (!wanted.empty()) return;
  groups_.push_back({"Mouse",
                     {{"Select the same thing in all panels", "click"},
                      {"Zoom a picture", "wheel"},
                      {"Move a picture", "drag"},
                      {"Fit a picture", "double click"},
                      {"Move a panel", "drag its tab"},
                      {"Copy the table under the mouse", "Ctrl+C"}}});
}

void KeysSheet::draw_group(const Group& group) {
  coloured(theme().accent, group.name);
  for (const Line& line : group.lines) {
    const float right = ImGui::GetCursorPosX() + ImGui::GetContentRegionAvail().x;
    const float keys = ImGui::CalcTextSize(line.keys.c_str()).x + px(10);
    ImGui::TextUnformatted(line.title.c_str());
    ImGui::SameLine();
    if (line.keys.empty()) {
      ImGui::SetCursorPosX(right - ImGui::CalcTextSize("none").x);
      ImGui::TextDisabled("none");
    } else {
      ImGui::SetCursorPosX(std::max(right - keys, ImGui::GetCursorPosX()));
      keycap(line.keys);
    }
  }
  ImGui::Dummy({0, px(6)});
}

void KeysSheet::draw(Ui& ui) {
  if (!dialog_.begin("Keys", {1000, 540})) return;
  if (dialog_.appearing()) {
    filter_.clear();
    ImGui::SetKeyboardFocusHere();
  }
  ImGui::SetNextItemWidth(px(260));
  text_input("##filter", filter_, "search");
  ImGui::SameLine();
  if (ImGui::Button("Change keys ..")) {
    dialog_.close();
    ui.run("settings.open");
  }
  ImGui::Separator();
  refresh(ui);
  if (groups_.empty()) {
    empty_state(ui, "No command matches the search.");
    dialog_.end();
    return;
  }
  // Groups fill the shortest column.
  const float width = ImGui::GetContentRegionAvail().x;
  const int columns = std::clamp(static_cast<int>(width / px(290)), 1, 4);
  std::vector<std::vector<const Group*>> sheet(static_cast<std::size_t>(columns));
  std::vector<std::size_t> heights(static_cast<std::size_t>(columns), 0);
  for (const Group& group : groups_) {
    const auto shortest = static_cast<std::size_t>(
        std::min_element(heights.begin(), heights.end()) - heights.begin());
    sheet[shortest].push_back(&group);
    heights[shortest] += group.lines.size() + 2;
  }
  const ImGuiTableFlags flags = ImGuiTableFlags_ScrollY | ImGuiTableFlags_SizingStretchSame |
                                ImGuiTableFlags_BordersInnerV | ImGuiTableFlags_PadOuterX;
  if (ImGui::BeginTable("##keys", columns, flags, ImGui::GetContentRegionAvail())) {
    ImGui::TableNextRow();
    for (const auto& column : sheet) {
      ImGui::TableNextColumn();
      for (const Group* group : column) draw_group(*group);
    }
    ImGui::EndTable();
  }
  dialog_.end();
}

std::unique_ptr<Overlay> make_keys_sheet() { return std::make_unique<KeysSheet>(); }

}  // namespace attnscope::gui
