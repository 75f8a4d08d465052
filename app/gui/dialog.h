// A dialog in the middle of the screen. Shortcuts rest while one is open; Escape, the cross and a
// click beside it close it.
//
//   dialog_.open();                                  // from a command
//   if (dialog_.begin("Settings", {640, 480})) { ..; dialog_.end(); }   // every frame
#pragma once

#include <imgui.h>

namespace attnscope::gui {

class Dialog {
 public:
  void open() { wanted_ = true; }
  void close() { closing_ = true; }
  // The first frame it is shown.
  bool appearing() const { return appearing_; }
  // size: pixels at scale 1, clamped to the screen; height 0 = as high as the contents. escape:
  // that key closes it.
  bool begin(const char* title, ImVec2 size, bool escape = true);
  void end();

 private:
  bool wanted_ = false, closing_ = false, appearing_ = false;
};

// Fields that stand out from the surface of a popup.
void push_field_style();
void pop_field_style();

}  // namespace attnscope::gui
