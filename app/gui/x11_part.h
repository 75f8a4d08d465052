// Puts a small part of a picture on the screen by itself. Where the driver draws on the CPU, a swap
// copies the whole window for it, which is most of what a move of the mouse costs.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "app/gui/gl_frame.h"

struct GLFWwindow;

namespace attnscope::gui {

class X11Part {
 public:
  X11Part();
  ~X11Part();
  X11Part(const X11Part&) = delete;
  X11Part& operator=(const X11Part&) = delete;

  // To the window of the current context. False: this window is not one of X11's with four bytes a
  // pixel, or a GPU draws it.
  bool open(GLFWwindow* window);
  void close();  // before the window
  // Whether it pays: there is a window, and this is a small part of a picture of that size.
  bool can_show(const PixelArea& part, int width, int height) const;
  // Pixels of the part as BGRX, top row first. What lies outside the window is left out.
  void show(const PixelArea& part, std::vector<std::uint32_t> pixels) const;

 private:
  struct Place;
  std::unique_ptr<Place> place_;
};

}  // namespace attnscope::gui
