// Frames in which nothing happens but that the mouse moves, if that. A panel away from the mouse
// shows in them what it showed before, so it keeps its picture instead of drawing it again: that
// would be most of what crossing the screen costs.
#pragma once

#include <cstdint>

struct ImGuiWindow;

namespace attnscope::gui {

class QuietFrames {
 public:
  // Once a frame, within it and before the panels. changed: something that panels may show is no
  // longer as it was in the frame before, or moves by itself.
  void begin(bool changed);
  // Before a panel's Begin(): true where that returns false, since the window keeps its picture.
  bool keep(const ImGuiWindow* window) const;
  // Behind the Begin() of a window that keeps its picture.
  static void kept(ImGuiWindow* window);
  bool quiet() const;

 private:
  int quiet_ = 0;                       // frames since something happened
  const ImGuiWindow* under_ = nullptr;  // the mouse
  const ImGuiWindow* left_ = nullptr;   // what was in the frame before, and is to lose its marks
  int font_texture_ = -1;               // where letters lie
};

}  // namespace attnscope::gui
