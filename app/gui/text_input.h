// Text fields on std::string, of any length.
#pragma once

#include <imgui.h>

#include <string>

namespace attnscope::gui {

// True when the text changed. As ImGui::InputText; `hint` is shown while it is empty. caret_at_end:
// nothing is selected, the caret stands behind the text.
bool text_input(const char* id, std::string& text, const char* hint = nullptr,
                ImGuiInputTextFlags flags = 0, bool caret_at_end = false);
// Several lines; wrapped unless very long.
bool text_area(const char* id, std::string& text, ImVec2 size, ImGuiInputTextFlags flags = 0);

}  // namespace attnscope::gui
