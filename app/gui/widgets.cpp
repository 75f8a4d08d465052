#include "app/gui/widgets.h"

#include <fmt/format.h>
#include <imgui_internal.h>

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "app/gui/colour.h"
#include "app/gui/icons.h"
#include "app/gui/rich_text.h"
#include "app/text/format.h"

namespace attnscope::gui {
namespace {

const char* end_of(std::string_view text) { return text.data() + text.size(); }

void text_unformatted(std::string_view text) { ImGui::TextUnformatted(text.data(), end_of(text)); }

// How the user left a sentence; else as the settings say.
enum Folding { kAsSet, kFolded, kUnfolded };
bool sentences_unfolded = false;

bool is_enabled(const Command& command) { return !command.enabled || command.enabled(); }
bool is_checked(const Command& command) { return command.checked && command.checked(); }

// Title, shortcut, help and, when it cannot run, why.
std::string command_help(const Ui& ui, const Command& command) {
  std::string text = command.title;
  if (const std::string keys = ui.commands.shortcut(command.id); !keys.empty()) {
    text += "   " + keys;
  }
  if (!command.help.empty()) text += "\n" + command.help;
  if (!is_enabled(command)) {
    text += "\nNot now" + (command.why_disabled.empty() ? "." : ": " + command.why_disabled + ".");
  }
  return text;
}

void command_tooltip(const Ui& ui, const Command& command) {
  if (ImGui::IsItemHovered(ImGuiHoveredFlags_ForTooltip | ImGuiHoveredFlags_AllowWhenDisabled)) {
    tooltip(command_help(ui, command));
  }
}

// True when pressed. The item is named by label and id: "Next step##step.forward".
bool button_for(const Ui& ui, const Command& command, const std::string& label) {
  const std::string text = fmt::format("{}##{}", label, command.id);
  const bool checked = is_checked(command);
  if (checked) {
    ImGui::PushStyleColor(ImGuiCol_Button, with_alpha(theme().accent, 0.35f));
    ImGui::PushStyleColor(ImGuiCol_ButtonHovered, with_alpha(theme().accent, 0.45f));
  }
  // Icons stand in squares, so that a row of them keeps its rhythm.
  const float natural = ImGui::CalcTextSize(label.c_str()).x + 2 * ImGui::GetStyle().FramePadding.x;
  ImGui::BeginDisabled(!is_enabled(command));
  const bool pressed =
      ImGui::Button(text.c_str(), {std::max(natural, ImGui::GetFrameHeight() * 1.15f), 0});
  ImGui::EndDisabled();
  if (checked) ImGui::PopStyleColor(2);
  command_tooltip(ui, command);
  return pressed;
}

void glyph_before(Verdict verdict) {
  if (verdict == Verdict::kNotCompared) return;
  coloured(verdict_colour(verdict), verdict_glyph(verdict));
  ImGui::SameLine(0, px(6));
}

}  // namespace

void caution(std::string_view text) {
  coloured(theme().warn, icon::kWarning);
  ImGui::SameLine(0, px(6));
  paragraph(text);
}

void unfold_sentences(bool unfolded) { sentences_unfolded = unfolded; }

void sentence(std::string_view text, Verdict verdict, float high) {
  const float start = ImGui::GetCursorPosY();
  glyph_before(verdict);
  const float room = ImGui::GetContentRegionAvail().x;
  if (ImGui::CalcTextSize(text.data(), end_of(text)).x <= room) return paragraph(text);
  // By its place in the panel: the words change from step to step.
  ImGui::PushID(static_cast<int>(start));
  const float width = std::max(1.0f, room - ImGui::GetFontSize());
  const float whole = ImGui::CalcTextSize(text.data(), end_of(text), false, width).y;
  const bool told = verdict == Verdict::kWrong && whole <= high;
  const ImGuiID kept = ImGui::GetID(told ? "wrong, unfolded" : "unfolded");
  ImGuiStorage* const storage = ImGui::GetStateStorage();
  const int choice = storage->GetInt(kept, kAsSet);
  const bool unfolded = choice == kAsSet ? told || sentences_unfolded : choice == kUnfolded;

  const ImVec2 min = ImGui::GetCursorScreenPos();
  const float height = unfolded ? whole : ImGui::GetTextLineHeight();
  const bool pressed = ImGui::InvisibleButton("Fold or unfold", {std::max(1.0f, room), height});
  if (pressed) storage->SetInt(kept, unfolded ? kFolded : kUnfolded);
  const bool hovered = ImGui::IsItemHovered();
  if (hovered && !unfolded) tooltip(text);
  ImDrawList* const list = ImGui::GetWindowDrawList();
  const ImU32 colour = ImGui::GetColorU32(ImGuiCol_Text);
  if (unfolded) {
    ImGui::LogRenderedText(&min, text.data(), end_of(text));
    list->AddText(ImGui::GetFont(), ImGui::GetFontSize(), min, colour, text.data(), end_of(text),
                  width);
  } else {
    const ImVec2 max(min.x + width, min.y + height);
    ImGui::RenderTextEllipsis(list, min, max, max.x, text.data(), end_of(text), nullptr);
  }
  const char* const glyph = unfolded ? icon::kAngleUp : icon::kAngleDown;
  list->AddText({min.x + room - ImGui::CalcTextSize(glyph).x, min.y},
                hovered ? colour : theme().text_dim, glyph);
  ImGui::PopID();
  ImGui::Spacing();
}

void text_cut(ImDrawList* list, ImVec2 at, float width, ImU32 colour, const std::string& text) {
  if (width <= 0) return;
  ImGui::PushStyleColor(ImGuiCol_Text, colour);
  ImGui::RenderTextEllipsis(list, at, {at.x + width, at.y + ImGui::GetTextLineHeight()},
                            at.x + width, text.data(), text.data() + text.size(), nullptr);
  ImGui::PopStyleColor();
}

std::string middle_cut(const std::string& text, float width) {
  const auto wide = [](const std::string& s) { return ImGui::CalcTextSize(s.c_str()).x; };
  if (wide(text) <= width) return text;
  const auto is_start = [&](std::size_t i) {  // of a letter of UTF-8
    return i >= text.size() || (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
  };
  for (std::size_t kept = text.size() - 1; kept > 1; --kept) {
    std::size_t head = (kept + 1) / 2, tail = text.size() - kept / 2;
    while (!is_start(head)) --head;
    while (!is_start(tail)) ++tail;
    std::string cut = text.substr(0, head) + ".." + text.substr(tail);
    if (wide(cut) <= width) return cut;
  }
  return "..";
}

void text_cut_middle(ImDrawList* list, ImVec2 at, float width, ImU32 colour,
                     const std::string& text) {
  if (width > 0) list->AddText(at, colour, middle_cut(text, width).c_str());
}

void paragraph(std::string_view text, Verdict verdict) {
  glyph_before(verdict);
  ImGui::PushTextWrapPos(0);
  text_unformatted(text);
  ImGui::PopTextWrapPos();
  ImGui::Spacing();
}

void empty_state(Ui& ui, std::string_view why, std::string_view id_and_value, CaptureLevel needs) {
  // What a capture does not hold cannot be computed here: it says how to record it.
  const std::string missing = ui.bench.why_missing(needs);
  if (!missing.empty()) {
    why = missing;
    id_and_value = {};
  }
  const std::string_view id = id_and_value.substr(0, id_and_value.find('='));
  const Command* command = id.empty() ? nullptr : ui.commands.find(id);
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const float wrap = std::max(px(60), std::min(room.x - px(16), px(420)));
  const ImVec2 size = ImGui::CalcTextSize(why.data(), end_of(why), false, wrap);
  const float button = command != nullptr ? ImGui::GetFrameHeight() + px(8) : 0;
  const ImVec2 start = ImGui::GetCursorPos();
  const float x = start.x + std::max(0.0f, (room.x - size.x) / 2);
  ImGui::SetCursorPos({x, start.y + std::max(px(4), (room.y - size.y - button) / 2)});
  ImGui::PushStyleColor(ImGuiCol_Text, theme().text_dim);
  ImGui::PushTextWrapPos(x + wrap);
  text_unformatted(why);
  ImGui::PopTextWrapPos();
  ImGui::PopStyleColor();
  if (command == nullptr) return;
  const std::string keys = ui.commands.shortcut(command->id);
  const std::string label = keys.empty() ? command->title : command->title + "   " + keys;
  const float width = ImGui::CalcTextSize(label.c_str()).x + 2 * ImGui::GetStyle().FramePadding.x;
  ImGui::SetCursorPos(
      {start.x + std::max(0.0f, (room.x - width) / 2), ImGui::GetCursorPosY() + px(4)});
  if (button_for(ui, *command, label)) ui.run(id_and_value);
}

void verdict_chip(Verdict verdict) {
  ImGui::PushStyleColor(ImGuiCol_Text, verdict_colour(verdict));
  std::string name = verdict_name(verdict);
  std::ranges::replace(name, '_', ' ');
  ImGui::Text("%s %s", verdict_glyph(verdict), name.c_str());
  ImGui::PopStyleColor();
}

bool command_button(Ui& ui, std::string_view id, const char* label) {
  const Command* command = ui.commands.find(id);
  if (command == nullptr) return false;
  const bool pressed = button_for(ui, *command, label != nullptr ? label : command->title);
  if (pressed) ui.run(std::string(id));
  return pressed;
}

bool picked_for_menu() {
  return ImGui::IsMouseClicked(ImGuiMouseButton_Right) && ImGui::IsItemHovered();
}

void command_menu_item(Ui& ui, std::string_view id) {
  const Command* command = ui.commands.find(id);
  if (command == nullptr) return;
  const std::string text = fmt::format("{}##{}", command->title, command->id);
  const bool pressed = ImGui::MenuItem(text.c_str(), ui.commands.shortcut(command->id).c_str(),
                                       is_checked(*command), is_enabled(*command));
  if (!command->help.empty() || !is_enabled(*command)) command_tooltip(ui, *command);
  if (pressed) ui.run(std::string(id));
}

void number_text(std::string_view text, float width, ImU32 colour) {
  ImGui::PushFont(numbers(), 0);
  const float room = width > 0 ? width : ImGui::GetContentRegionAvail().x;
  const float wanted = ImGui::CalcTextSize(text.data(), end_of(text)).x;
  ImGui::SetCursorPosX(ImGui::GetCursorPosX() + std::max(0.0f, std::floor(room - wanted)));
  if (colour != 0) ImGui::PushStyleColor(ImGuiCol_Text, colour);
  text_unformatted(text);
  if (colour != 0) ImGui::PopStyleColor();
  ImGui::PopFont();
}

void field(const char* label, std::string_view value) {
  coloured(theme().text_dim, label);
  ImGui::SameLine(0, px(6));
  ImGui::PushTextWrapPos(0);
  text_unformatted(value);
  ImGui::PopTextWrapPos();
}

void dim(const std::string& text) {
  ImGui::PushStyleColor(ImGuiCol_Text, theme().text_dim);
  ImGui::TextWrapped("%s", text.c_str());
  ImGui::PopStyleColor();
}

void running_bar(Ui& ui, double share, const char* doing, const char* stop) {
  ImGui::ProgressBar(static_cast<float>(share), {px(220), 0},
                     fmt::format("{} {}", doing, format_share(share)).c_str());
  ImGui::SameLine();
  command_button(ui, stop, "Stop");
}

void coloured(ImU32 colour, std::string_view text) {
  ImGui::PushStyleColor(ImGuiCol_Text, colour);
  text_unformatted(text);
  ImGui::PopStyleColor();
}

void tooltip(std::string_view text) {
  if (text.empty()) return;
  for (const ImGuiMouseButton button :
       {ImGuiMouseButton_Left, ImGuiMouseButton_Right, ImGuiMouseButton_Middle}) {
    if (ImGui::IsMouseDragging(button)) return;
  }
  if (!ImGui::BeginTooltip()) return;
  rich_text(text, std::min(px(420), ImGui::GetMainViewport()->Size.x * 0.8f));
  ImGui::EndTooltip();
}

void legend(ImU32 colour, const char* text, bool hatched, bool outline) {
  const float side = std::round(ImGui::GetFontSize() * 0.72f);
  ImGui::BeginGroup();
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float top = std::round(at.y + (ImGui::GetTextLineHeight() - side) / 2);
  const ImVec2 min = {at.x, top}, max = {at.x + side, top + side};
  ImDrawList* list = ImGui::GetWindowDrawList();
  if (hatched) {
    draw_hatch(list, min, max);
  } else if (outline) {
    draw_free(list, min, max);
  } else {
    list->AddRectFilled(min, max, colour, px(2));
  }
  ImGui::Dummy({side, ImGui::GetTextLineHeight()});
  ImGui::SameLine(0, px(5));
  coloured(theme().text_dim, text);
  ImGui::EndGroup();
}

const char* lane_sign(std::string_view lane) {
  if (lane.starts_with("mutant:")) return icon::kBug;
  return lane.starts_with("plugin:") ? icon::kPlug : icon::kLayers;
}

void same_line_for(float width, float gap) {
  const float right = ImGui::GetCursorScreenPos().x + ImGui::GetContentRegionAvail().x;
  const float between = gap < 0 ? ImGui::GetStyle().ItemSpacing.x : gap;
  if (ImGui::GetItemRectMax().x + between + width <= right) ImGui::SameLine(0, between);
}

float button_width(const char* label) {
  return ImGui::CalcTextSize(label, nullptr, true).x + 2 * ImGui::GetStyle().FramePadding.x;
}

bool segmented(const char* id, int* current, const char* const* labels, int count) {
  bool changed = false;
  const Theme& t = theme();
  const ImU32 chosen = mix(t.panel, t.accent, t.dark ? 0.38f : 0.24f);
  const float right = ImGui::GetCursorScreenPos().x + ImGui::GetContentRegionAvail().x;
  ImGui::PushID(id);
  for (int i = 0; i < count; ++i) {
    const float width = button_width(labels[i]);
    // On the same line while it fits.
    if (i > 0 && ImGui::GetItemRectMax().x + px(1) + width <= right) ImGui::SameLine(0, px(1));
    const bool on = i == *current;
    if (on) {
      ImGui::PushStyleColor(ImGuiCol_Button, chosen);
      ImGui::PushStyleColor(ImGuiCol_ButtonHovered, chosen);
      ImGui::PushStyleColor(ImGuiCol_Text, text_on(chosen));
    }
    if (ImGui::Button(labels[i]) && !on) {
      *current = i;
      changed = true;
    }
    if (on) ImGui::PopStyleColor(3);
  }
  ImGui::PopID();
  return changed;
}

}  // namespace attnscope::gui
