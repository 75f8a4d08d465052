#include "app/gui/x11_part.h"

#ifdef ATTNSCOPE_WITHOUT_X11

namespace attnscope::gui {

// No window is one of X11's.
struct X11Part::Place {};
X11Part::X11Part() = default;
X11Part::~X11Part() = default;
bool X11Part::open(GLFWwindow*) { return false; }
void X11Part::close() {}
bool X11Part::can_show(const PixelArea&, int, int) const { return false; }
void X11Part::show(const PixelArea&, std::vector<std::uint32_t>) const {}

}  // namespace attnscope::gui

#else

#include <X11/Xlib.h>
#include <X11/Xutil.h>
#include <dlfcn.h>

#include <bit>
#include <cstddef>

namespace attnscope::gui {

struct X11Part::Place {
  Display* display = nullptr;
  Window window = 0;
  Visual* visual = nullptr;
  unsigned depth = 0;
  GC context = nullptr;
};

X11Part::X11Part() = default;
X11Part::~X11Part() = default;

bool X11Part::open(GLFWwindow* window) {
  place_.reset();
  if (!gl_is_software() || std::endian::native != std::endian::little) return false;
  // A GLFW that was built for another window system lacks these two.
  const auto display_of =
      reinterpret_cast<Display* (*)()>(::dlsym(RTLD_DEFAULT, "glfwGetX11Display"));
  const auto window_of =
      reinterpret_cast<Window (*)(GLFWwindow*)>(::dlsym(RTLD_DEFAULT, "glfwGetX11Window"));
  if (display_of == nullptr || window_of == nullptr) return false;
  Place place;
  place.display = display_of();
  if (place.display == nullptr) return false;
  place.window = window_of(window);
  XWindowAttributes look{};
  if (place.window == 0 || XGetWindowAttributes(place.display, place.window, &look) == 0) {
    return false;
  }
  const Visual& v = *look.visual;
  const bool bgrx = v.red_mask == 0xFF0000 && v.green_mask == 0xFF00 && v.blue_mask == 0xFF;
  if (!bgrx || (look.depth != 24 && look.depth != 32)) return false;
  if (ImageByteOrder(place.display) != LSBFirst) return false;
  place.visual = look.visual;
  place.depth = static_cast<unsigned>(look.depth);
  place.context = XCreateGC(place.display, place.window, 0, nullptr);
  place_ = std::make_unique<Place>(place);
  return true;
}

void X11Part::close() {
  if (place_) XFreeGC(place_->display, place_->context);
  place_.reset();
}

bool X11Part::can_show(const PixelArea& part, int width, int height) const {
  // Of a large part a swap, which goes through memory that the server shares, costs less.
  const std::int64_t pixels =
      std::int64_t{part.right - part.left} * std::int64_t{part.bottom - part.top};
  return place_ != nullptr && pixels * 4 <= std::int64_t{width} * height;
}

void X11Part::show(const PixelArea& part, std::vector<std::uint32_t> pixels) const {
  const auto width = static_cast<unsigned>(part.right - part.left);
  const auto height = static_cast<unsigned>(part.bottom - part.top);
  XImage image{};
  image.width = static_cast<int>(width);
  image.height = static_cast<int>(height);
  image.format = ZPixmap;
  image.data = reinterpret_cast<char*>(pixels.data());
  image.byte_order = LSBFirst;
  image.bitmap_unit = 32;
  image.bitmap_bit_order = LSBFirst;
  image.bitmap_pad = 32;
  image.depth = static_cast<int>(place_->depth);
  image.bits_per_pixel = 32;
  image.bytes_per_line = static_cast<int>(width * sizeof(std::uint32_t));
  image.red_mask = place_->visual->red_mask;
  image.green_mask = place_->visual->green_mask;
  image.blue_mask = place_->visual->blue_mask;
  if (XInitImage(&image) == 0) return;
  XPutImage(place_->display, place_->window, place_->context, &image, 0, 0, part.left, part.top,
            width, height);
  XFlush(place_->display);
}

}  // namespace attnscope::gui

#endif
