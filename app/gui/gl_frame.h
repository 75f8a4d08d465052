// The few OpenGL calls that both platforms share.
#pragma once

#include <string>

#include "app/gui/platform.h"

namespace attnscope::gui {

// Clears, and draws ImGui's data, into the bound frame buffer.
void draw_imgui(int width, int height);
// The bound frame buffer, top row first.
Image read_frame(int width, int height);
std::string gl_description();
// Version of the current context times ten: 33, 45.
int gl_version();
// The driver says that the context is gone.
bool gl_lost();

}  // namespace attnscope::gui
