// Where frames go: a GLFW window, or a frame buffer of an EGL context without any surface. Both own
// the OpenGL 3.3 context and ImGui's renderer; the ImGui context is the caller's and outlives them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/params/result.h"

namespace attnscope::gui {

struct Image {
  int width = 0, height = 0;
  std::vector<std::uint8_t> rgb;  // [height, width, 3], top row first
};

// A rectangle of the desktop, in the window system's own units.
struct Area {
  int x = 0, y = 0, width = 0, height = 0;
};
// Whether a window there can be seen and moved: enough of its upper edge lies on one of them.
bool within_reach(const Area& window, std::span<const Area> monitors);

// Its size, cut to that of the largest of them; unchanged where none is known.
Area fitted(Area window, std::span<const Area> monitors);

class Platform {
 public:
  virtual ~Platform() = default;
  // Takes events, waiting up to `wait` seconds for one (negative: as long as it takes), and starts
  // ImGui's frame. False when the user closed the window.
  virtual bool begin_frame(double wait) = 0;
  // The last begin_frame returned because something happened.
  virtual bool had_event() const = 0;
  // Draws what ImGui::Render() left.
  virtual Result<void> render() = 0;
  virtual Image read_pixels() = 0;
  // The window was to be closed, and stays.
  virtual void keep_open() {}
  // Ends a wait. From any thread.
  virtual void wake() = 0;
  // Makes context and renderer anew, after the driver lost them. The window stays.
  virtual Result<void> recreate() = 0;
  virtual Result<void> resize(int width, int height) = 0;
  virtual float content_scale() const = 0;
  virtual std::string description() const = 0;  // "OpenGL 4.5, llvmpipe"
  // Where the window is; nullopt off screen and where the window system does not tell.
  virtual std::optional<std::pair<int, int>> place() const { return std::nullopt; }
  // Called with files dropped on the window.
  std::function<void(const std::vector<std::string>&)> on_drop;
  virtual void set_title(const std::string&) {}
};

// AS_NO_ENVIRONMENT with what to do: no display, no OpenGL 3.3, ..
// at: where the window was last; it comes up there unless that is out of reach by now.
Result<std::unique_ptr<Platform>> make_window(const std::string& title, int width, int height,
                                              std::optional<std::pair<int, int>> at = {});
Result<std::unique_ptr<Platform>> make_offscreen(int width, int height);

// Whether a window can be asked for (DISPLAY or WAYLAND_DISPLAY is set).
bool has_display();

Result<void> write_png(const Image& image, const std::string& path);

}  // namespace attnscope::gui
