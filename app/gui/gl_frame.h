// The few OpenGL calls that both platforms share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/gui/platform.h"

struct ImDrawData;
struct ImDrawList;

namespace attnscope::gui {

// Part of a picture in pixels, from its upper left corner.
struct PixelArea {
  int left = 0, top = 0, right = 0, bottom = 0;
  bool empty() const { return right <= left || bottom <= top; }
  void add(const PixelArea& other);
};

// What was drawn last. Of a frame that looks the same in most places, as while the mouse crosses a
// panel, the others alone are drawn again: on a software renderer that is most of its cost.
class DrawnFrame {
 public:
  // Where ImGui's data is not what is in the picture already; takes note of it.
  PixelArea changed(int width, int height);
  // Clears, and draws ImGui's data, that changed() took note of in this frame, in this part of the
  // bound frame buffer.
  void draw(int width, int height, const PixelArea& part) const;
  void forget() { known_ = false; }  // what is in the picture is gone

 private:
  // What one window draws.
  struct List {
    const void* id = nullptr;
    std::vector<unsigned char> corners, order, commands;  // as ImGui has them
    std::vector<unsigned> counts;                         // of indices, by command
    bool one_range = true;                                // indices count from the first corner
    PixelArea area;
  };
  static List list_of(const ImDrawList& list, const ImDrawData& data);
  static PixelArea between(const List& before, const List& now, const ImDrawData& data);

  bool known_ = false;
  std::uint64_t around_ = 0;  // hash of size and colour behind all
  std::vector<List> lists_;   // from back to front
};

// Clears, and draws ImGui's data, in all of the bound frame buffer.
void draw_imgui(int width, int height);

// A picture that stays from frame to frame, as that of a window does not.
class KeptPicture {
 public:
  // Binds it for drawing. False: there is none of this size, draw into the window itself. anew: its
  // contents are undefined.
  bool bind(int width, int height, bool& anew);
  // Into the window's back buffer, which is bound then.
  void show() const;
  // A part, as BGRX, top row first.
  std::vector<std::uint32_t> pixels(const PixelArea& part) const;
  void close();  // before its context ends

 private:
  unsigned frame_ = 0, colour_ = 0;
  int width_ = 0, height_ = 0;
};

// The bound frame buffer, top row first.
Image read_frame(int width, int height);
std::string gl_description();
bool gl_is_software();  // the driver draws on the CPU
// Version of the current context times ten: 33, 45.
int gl_version();
// The driver says that the context is gone.
bool gl_lost();

}  // namespace attnscope::gui
