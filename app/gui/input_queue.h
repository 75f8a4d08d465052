// Input between the window system and ImGui, which takes up one change of a key or button a frame
// and keeps what is left for the next ones.
#pragma once

namespace attnscope::gui {

// Seconds that a frame lasts which takes up input and is not shown.
inline constexpr float kUnseenFrame = 1e-5f;

// Whether events are left for a further frame.
bool input_waits();

// ImGui::NewFrame(), which takes up no more than one combination of keys: a modifier that changes
// after another key was pressed belongs to a later frame. ImGui alone sees only how modifiers stand
// at the end of a frame, so that of Ctrl+Left, let go at once, Left would be left.
void new_frame();

}  // namespace attnscope::gui
