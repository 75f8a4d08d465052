#include "app/gui/widgets.h"

#include <imgui_internal.h>

#include <algorithm>
#include <cmath>

#include "app/gui/icons.h"

namespace attnscope::gui {
namespace {

const char* end_of(std::string_view text) { return text.data() + text.size(); }

std::string tooltip_of(Ui& ui, const Command& command) {
  std::string text = command.title;
  if (const std::string keys = ui.commands.shortcut(command.id); !keys.empty()) {
    text += "  (" + keys + ")";
  }
  if (!command.help.empty()) text += "\n" + command.help;
  if (command.enabled && !command.enabled() && !command.why_disabled.empty()) {
    text += "\nNot now: " + command.why_disabled + ".";
  }
  return text;
}

}  // namespace

void sentence(std::string_view text, Verdict verdict) {
  if (verdict != Verdict::kNotCompared) {
    ImGui::PushStyleColor(ImGuiCol_Text, verdict_colour(verdict));
    ImGui::TextUnformatted(verdict_glyph(verdict));
    ImGui::PopStyleColor();
    ImGui::SameLine(0, px(6));
  }
  ImGui::PushTextWrapPos(0);
  ImGui::TextUnformatted(text.data(), end_of(text));
  ImGui::PopTextWrapPos();
}

void empty_state(Ui& ui, std::string_view why, std::string_view command) {
  ImGui::Dummy(ImVec2(0, px(4)));
  ImGui::PushStyleColor(ImGuiCol_Text, theme().text_dim);
  ImGui::PushTextWrapPos(0);
  ImGui::TextUnformatted(why.data(), end_of(why));
  ImGui::PopTextWrapPos();
  ImGui::PopStyleColor();
  if (!command.empty()) {
    const std::string id(command.substr(0, command.find('=')));
    const Command* found = ui.commands.find(id);
    if (found == nullptr) return;
    const std::string keys = ui.commands.shortcut(id);
    const std::string label =
        found->title + (keys.empty() ? "" : "  (" + keys + ")") + "###do " + std::string(command);
    ImGui::BeginDisabled(found->enabled && !found->enabled());
    if (ImGui::Button(label.c_str())) ui.run(command);
    ImGui::EndDisabled();
    if (ImGui::IsItemHovered(ImGuiHoveredFlags_AllowWhenDisabled)) tooltip(tooltip_of(ui, *found));
  }
}

void verdict_chip(Verdict verdict) {
  ImGui::PushStyleColor(ImGuiCol_Text, verdict_colour(verdict));
  ImGui::Text("%s %s", verdict_glyph(verdict), verdict_name(verdict));
  ImGui::PopStyleColor();
}

bool command_button(Ui& ui, std::string_view id, const char* label) {
  const Command* command = ui.commands.find(id);
  if (command == nullptr) return false;
  const bool disabled = command->enabled && !command->enabled();
  const std::string text =
      std::string(label != nullptr ? label : command->title.c_str()) + "###" + command->id;
  ImGui::BeginDisabled(disabled);
  const bool pressed = ImGui::Button(text.c_str());
  ImGui::EndDisabled();
  if (ImGui::IsItemHovered(ImGuiHoveredFlags_AllowWhenDisabled | ImGuiHoveredFlags_DelayShort)) {
    tooltip(tooltip_of(ui, *command));
  }
  if (pressed) ui.run(std::string(id));
  return pressed;
}

void command_menu_item(Ui& ui, std::string_view id) {
  const Command* command = ui.commands.find(id);
  if (command == nullptr) return;
  const bool enabled = !command->enabled || command->enabled();
  const bool checked = command->checked && command->checked();
  const std::string keys = ui.commands.shortcut(command->id);
  const std::string text = command->title + "###" + command->id;
  const bool pressed =
      ImGui::MenuItem(text.c_str(), keys.empty() ? nullptr : keys.c_str(), checked, enabled);
  if (ImGui::IsItemHovered(ImGuiHoveredFlags_AllowWhenDisabled | ImGuiHoveredFlags_DelayNormal)) {
    tooltip(tooltip_of(ui, *command));
  }
  if (pressed) ui.run(std::string(id));
}

void number_text(std::string_view text, float width, ImU32 colour) {
  ImGui::PushFont(numbers(), 0);
  const float room = width > 0 ? width : ImGui::GetContentRegionAvail().x;
  const float needed = ImGui::CalcTextSize(text.data(), end_of(text)).x;
  if (room > needed) ImGui::SetCursorPosX(ImGui::GetCursorPosX() + room - needed);
  if (colour != 0) ImGui::PushStyleColor(ImGuiCol_Text, colour);
  ImGui::TextUnformatted(text.data(), end_of(text));
  if (colour != 0) ImGui::PopStyleColor();
  ImGui::PopFont();
}

void field(const char* label, std::string_view value) {
  ImGui::PushStyleColor(ImGuiCol_Text, theme().text_dim);
  ImGui::TextUnformatted(label);
  ImGui::PopStyleColor();
  ImGui::SameLine(0, px(6));
  ImGui::TextUnformatted(value.data(), end_of(value));
}

void draw_hatch(ImDrawList* list, ImVec2 min, ImVec2 max) {
  const float gap = std::max(3.0f, px(5));
  const float height = max.y - min.y;
  if (max.x - min.x < 1 || height < 1) return;
  list->PushClipRect(min, max, true);
  for (float x = min.x - height; x < max.x; x += gap) {
    list->AddLine(ImVec2(x, max.y), ImVec2(x + height, min.y), theme().hatch);
  }
  list->PopClipRect();
  list->AddRect(min, max, with_alpha(theme().hatch, 0.6f));
}

void draw_free(ImDrawList* list, ImVec2 min, ImVec2 max) { list->AddRect(min, max, theme().grid); }

void draw_selected(ImDrawList* list, ImVec2 min, ImVec2 max) {
  list->AddRect(ImVec2(min.x - 1, min.y - 1), ImVec2(max.x + 1, max.y + 1), theme().accent, 0,
                std::max(2.0f, px(2)));
}

void draw_hovered(ImDrawList* list, ImVec2 min, ImVec2 max) {
  list->AddRect(min, max, theme().accent_soft, 0, std::max(1.5f, px(1.5f)));
}

void draw_cell_text(ImDrawList* list, ImVec2 min, ImVec2 max, ImU32 colour, std::string_view text) {
  const ImVec2 size = ImGui::CalcTextSize(text.data(), end_of(text));
  if (size.x + 2 > max.x - min.x || size.y > max.y - min.y + 2) return;
  list->AddText(
      ImVec2(std::floor((min.x + max.x - size.x) / 2), std::floor((min.y + max.y - size.y) / 2)),
      colour, text.data(), end_of(text));
}

ImU32 text_on(ImU32 background) {
  const auto r = static_cast<float>(background >> IM_COL32_R_SHIFT & 255);
  const auto g = static_cast<float>(background >> IM_COL32_G_SHIFT & 255);
  const auto b = static_cast<float>(background >> IM_COL32_B_SHIFT & 255);
  return 0.299f * r + 0.587f * g + 0.114f * b > 140 ? IM_COL32(16, 18, 22, 255)
                                                    : IM_COL32(240, 240, 240, 255);
}

void tooltip(std::string_view text) {
  if (ImGui::IsMouseDragging(ImGuiMouseButton_Left)) return;
  if (!ImGui::BeginTooltip()) return;
  ImGui::PushTextWrapPos(px(460));
  ImGui::TextUnformatted(text.data(), end_of(text));
  ImGui::PopTextWrapPos();
  ImGui::EndTooltip();
}

void legend(ImU32 colour, const char* text, bool hatched, bool outline) {
  const float side = ImGui::GetFontSize() * 0.8f;
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float y = at.y + (ImGui::GetTextLineHeight() - side) / 2;
  ImDrawList* list = ImGui::GetWindowDrawList();
  const ImVec2 min(at.x, y), max(at.x + side, y + side);
  if (hatched) {
    draw_hatch(list, min, max);
  } else if (outline) {
    list->AddRect(min, max, colour);
  } else {
    list->AddRectFilled(min, max, colour, px(2));
  }
  ImGui::Dummy(ImVec2(side, ImGui::GetTextLineHeight()));
  ImGui::SameLine(0, px(5));
  ImGui::PushStyleColor(ImGuiCol_Text, theme().text_dim);
  ImGui::TextUnformatted(text);
  ImGui::PopStyleColor();
}

bool segmented(const char* id, int* current, const char* const* labels, int count) {
  bool changed = false;
  ImGui::PushID(id);
  ImGui::PushStyleVar(ImGuiStyleVar_FrameRounding, px(3));
  for (int i = 0; i < count; ++i) {
    if (i > 0) ImGui::SameLine(0, px(1));
    const bool on = *current == i;
    if (on) {
      ImGui::PushStyleColor(ImGuiCol_Button, ImGui::GetStyleColorVec4(ImGuiCol_HeaderActive));
    } else {
      ImGui::PushStyleColor(ImGuiCol_Text, theme().text_dim);
    }
    if (ImGui::Button(labels[i]) && !on) {
      *current = i;
      changed = true;
    }
    ImGui::PopStyleColor();
  }
  ImGui::PopStyleVar();
  ImGui::PopID();
  return changed;
}

}  // namespace attnscope::gui
