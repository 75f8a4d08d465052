// Shortcut texts ("Ctrl+Right") as ImGui's key chords, both ways.
#pragma once

#include <imgui.h>

#include <string>
#include <string_view>

namespace attnscope::gui {

// Ctrl, Shift, Alt or Super, of either side or as such.
bool is_modifier(ImGuiKey key);
// 0 for a text that is none.
ImGuiKeyChord key_chord(std::string_view shortcut);
// The combination that is being pressed now (modifiers with one other key); empty = none.
std::string pressed_chord();

}  // namespace attnscope::gui
