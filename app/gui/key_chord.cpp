#include "app/gui/key_chord.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

namespace attnscope::gui {
namespace {

struct Name {
  const char* text;
  ImGuiKey key;
};

// Keys whose names differ from ImGui's own.
constexpr std::array<Name, 16> kKeyNames = {{{"Left", ImGuiKey_LeftArrow},
                                             {"Right", ImGuiKey_RightArrow},
                                             {"Up", ImGuiKey_UpArrow},
                                             {"Down", ImGuiKey_DownArrow},
                                             {"Comma", ImGuiKey_Comma},
                                             {"Period", ImGuiKey_Period},
                                             {"Slash", ImGuiKey_Slash},
                                             {"Minus", ImGuiKey_Minus},
                                             {"Equal", ImGuiKey_Equal},
                                             {"LeftBracket", ImGuiKey_LeftBracket},
                                             {"RightBracket", ImGuiKey_RightBracket},
                                             {"Backslash", ImGuiKey_Backslash},
                                             {"Semicolon", ImGuiKey_Semicolon},
                                             {"Apostrophe", ImGuiKey_Apostrophe},
                                             {"Grave", ImGuiKey_GraveAccent},
                                             {"Enter", ImGuiKey_Enter}}};

ImGuiKey key_of(std::string_view name) {
  for (const Name& n : kKeyNames) {
    if (name == n.text) return n.key;
  }
  for (int key = ImGuiKey_NamedKey_BEGIN; key < ImGuiKey_NamedKey_END; ++key) {
    if (name == ImGui::GetKeyName(static_cast<ImGuiKey>(key))) return static_cast<ImGuiKey>(key);
  }
  return ImGuiKey_None;
}

}  // namespace

bool is_modifier(ImGuiKey key) {
  return (key >= ImGuiKey_LeftCtrl && key <= ImGuiKey_RightSuper) ||
         key >= ImGuiKey_ReservedForModCtrl;
}

ImGuiKeyChord key_chord(std::string_view shortcut) {
  ImGuiKeyChord chord = 0;
  while (true) {
    const auto plus = shortcut.find('+');
    const std::string_view part = shortcut.substr(0, plus);
    if (plus == std::string_view::npos) {
      const ImGuiKey key = key_of(part);
      return key == ImGuiKey_None ? 0 : chord | key;
    }
    if (part == "Ctrl") {
      chord |= ImGuiMod_Ctrl;
    } else if (part == "Alt") {
      chord |= ImGuiMod_Alt;
    } else if (part == "Shift") {
      chord |= ImGuiMod_Shift;
    } else {
      return 0;
    }
    shortcut.remove_prefix(plus + 1);
  }
}

std::string pressed_chord() {
  for (int i = ImGuiKey_NamedKey_BEGIN; i < ImGuiKey_GamepadStart; ++i) {
    const auto key = static_cast<ImGuiKey>(i);
    if (is_modifier(key) || !ImGui::IsKeyPressed(key, false)) continue;
    const ImGuiIO& io = ImGui::GetIO();
    std::string text;
    if (io.KeyCtrl) text += "Ctrl+";
    if (io.KeyAlt) text += "Alt+";
    if (io.KeyShift) text += "Shift+";
    const auto* named = std::find_if(kKeyNames.begin(), kKeyNames.end(),
                                     [&](const Name& n) { return n.key == key; });
    return text + (named != kKeyNames.end() ? named->text : ImGui::GetKeyName(key));
  }
  return {};
}

}  // namespace attnscope::gui
