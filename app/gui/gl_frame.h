// The few OpenGL calls that both platforms share.
#pragma once

#include <cstdint>
#include <string>

#include "app/gui/platform.h"

namespace attnscope::gui {

// What was drawn last. A frame that looks the same, as most do while the mouse crosses a panel, is
// not drawn again: on a software renderer that is most of its cost.
class DrawnFrame {
 public:
  // Whether ImGui's data is what is on the screen already; takes note of it.
  bool shows(int width, int height);
  void forget() { drawn_ = 0; }  // what is on the screen is gone

 private:
  std::uint64_t drawn_ = 0;  // hash; 0 = nothing
};

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
