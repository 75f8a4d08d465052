// A window on the desktop, through GLFW.
#include <GLFW/glfw3.h>
#include <fmt/format.h>
#include <imgui.h>
#include <imgui_impl_glfw.h>
#include <imgui_impl_opengl3.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>

#include "app/gui/gl_frame.h"
#include "app/gui/platform.h"
#include "app/gui/x11_part.h"

namespace attnscope::gui {
namespace {

constexpr double kFrameSeconds = 1.0 / 60;

std::string glfw_problem() {
  const char* text = nullptr;
  glfwGetError(&text);
  return text != nullptr ? text : "no reason given";
}

class Window final : public Platform {
 public:
  ~Window() override {
    close();
    glfwTerminate();
  }

  Result<void> open(const std::string& title, int width, int height,
                    std::optional<std::pair<int, int>> at) {
    if (glfwInit() != GLFW_TRUE) {
      return Error{AS_NO_ENVIRONMENT, "cannot reach a display: " + glfw_problem(),
                   "set DISPLAY, or use --screenshot FILE, which needs no display"};
    }
    title_ = title;
    const Area area = fitted({0, 0, width, height}, monitors());
    width_ = area.width;
    height_ = area.height;
    // One that was cut to a screen is placed by the window system.
    if (width_ == width && height_ == height) at_ = at;
    return create();
  }

  bool begin_frame(double wait) override {
    // Nothing was drawn that would have waited for the screen.
    if (std::exchange(same_, false) && wait == 0) {
      const double due = begun_ + kFrameSeconds - glfwGetTime();
      if (due > 0) std::this_thread::sleep_for(std::chrono::duration<double>(due));
    }
    const double start = begun_ = glfwGetTime();
    if (wait < 0) {
      glfwWaitEvents();
      had_event_ = true;
    } else if (wait > 0) {
      glfwWaitEventsTimeout(wait);
      had_event_ = glfwGetTime() - start < wait * 0.98;
    } else {
      glfwPollEvents();
      had_event_ = false;
    }
    if (glfwWindowShouldClose(window_) != 0) return false;
    ImGui_ImplOpenGL3_NewFrame();
    ImGui_ImplGlfw_NewFrame();
    return true;
  }
  bool had_event() const override { return had_event_; }

  Result<void> render() override {
    int width = 0, height = 0;
    glfwGetFramebufferSize(window_, &width, &height);
    if (gl_lost()) return Error{AS_NO_ENVIRONMENT, "the graphics driver lost its context", ""};
    bool anew = false;
    const bool kept = picture_.bind(width, height, anew);
    if (anew || !kept) drawn_.forget();
    const PixelArea part = drawn_.changed(width, height);
    same_ = part.empty();
    if (same_) return {};
    drawn_.draw(width, height, part);
    if (kept && !anew && small_.can_show(part, width, height)) {
      small_.show(part, picture_.pixels(part));
      same_ = true;  // nothing has waited for the screen here either
      return {};
    }
    if (kept) picture_.show();
    glfwSwapBuffers(window_);
    return {};
  }

  Image read_pixels() override {
    // The back buffer is undefined after a swap: draw the same data again.
    int width = 0, height = 0;
    glfwGetFramebufferSize(window_, &width, &height);
    drawn_.forget();
    draw_imgui(width, height);
    return read_frame(width, height);
  }

  void wake() override { glfwPostEmptyEvent(); }

  Result<void> recreate() override {
    glfwGetWindowSize(window_, &width_, &height_);
    at_ = place();
    close();
    return create();
  }

  Result<void> resize(int width, int height) override {
    glfwSetWindowSize(window_, width, height);
    return {};
  }

  float content_scale() const override {
    float x = 1, y = 1;
    glfwGetWindowContentScale(window_, &x, &y);
    return std::max(x, y);
  }
  std::string description() const override { return description_; }
  std::optional<std::pair<int, int>> place() const override {
    int x = 0, y = 0;
    glfwGetError(nullptr);
    glfwGetWindowPos(window_, &x, &y);
    if (glfwGetError(nullptr) != GLFW_NO_ERROR) return std::nullopt;
    return std::pair(x, y);
  }
  void keep_open() override { glfwSetWindowShouldClose(window_, GLFW_FALSE); }
  void set_title(const std::string& title) override {
    if (title == title_) return;
    title_ = title;
    glfwSetWindowTitle(window_, title.c_str());
  }

 private:
  Result<void> create() {
    glfwWindowHint(GLFW_CONTEXT_VERSION_MAJOR, 3);
    glfwWindowHint(GLFW_CONTEXT_VERSION_MINOR, 3);
    glfwWindowHint(GLFW_OPENGL_PROFILE, GLFW_OPENGL_CORE_PROFILE);
    glfwWindowHint(GLFW_OPENGL_FORWARD_COMPAT, GLFW_TRUE);
    glfwWindowHint(GLFW_CONTEXT_ROBUSTNESS, GLFW_LOSE_CONTEXT_ON_RESET);
    // Hidden until it stands where it belongs.
    const bool placed = at_ && within_reach({at_->first, at_->second, width_, height_}, monitors());
    glfwWindowHint(GLFW_VISIBLE, placed ? GLFW_FALSE : GLFW_TRUE);
    window_ = glfwCreateWindow(width_, height_, title_.c_str(), nullptr, nullptr);
    if (window_ == nullptr) {
      // Some drivers know no robustness.
      glfwWindowHint(GLFW_CONTEXT_ROBUSTNESS, GLFW_NO_ROBUSTNESS);
      window_ = glfwCreateWindow(width_, height_, title_.c_str(), nullptr, nullptr);
    }
    if (window_ == nullptr) {
      return Error{AS_NO_ENVIRONMENT, "no window with OpenGL 3.3 core: " + glfw_problem(),
                   "update the graphics driver, or set LIBGL_ALWAYS_SOFTWARE=1 to draw on the CPU"};
    }
    if (placed) {
      glfwSetWindowPos(window_, at_->first, at_->second);
      glfwShowWindow(window_);
    }
    glfwMakeContextCurrent(window_);
    glfwSwapInterval(1);
    glfwSetWindowSizeLimits(window_, 300, 200, GLFW_DONT_CARE, GLFW_DONT_CARE);
    glfwSetWindowUserPointer(window_, this);
    drawn_.forget();
    glfwSetWindowRefreshCallback(window_, [](GLFWwindow* window) {
      static_cast<Window*>(glfwGetWindowUserPointer(window))->drawn_.forget();
    });
    glfwSetDropCallback(window_, [](GLFWwindow* window, int count, const char** paths) {
      auto* self = static_cast<Window*>(glfwGetWindowUserPointer(window));
      if (self->on_drop) self->on_drop(std::vector<std::string>(paths, paths + count));
    });
    ImGui_ImplGlfw_InitForOpenGL(window_, true);
    if (!ImGui_ImplOpenGL3_Init("#version 330 core")) {
      return Error{AS_NO_ENVIRONMENT, "the renderer does not start on this OpenGL",
                   "set LIBGL_ALWAYS_SOFTWARE=1 to draw on the CPU"};
    }
    description_ = gl_description();
    small_.open(window_);
    return {};
  }

  static std::vector<Area> monitors() {
    int count = 0;
    GLFWmonitor** found = glfwGetMonitors(&count);
    std::vector<Area> areas(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < areas.size(); ++i) {
      Area& a = areas[i];
      glfwGetMonitorWorkarea(found[i], &a.x, &a.y, &a.width, &a.height);
    }
    return areas;
  }

  void close() {
    if (window_ == nullptr) return;
    small_.close();
    picture_.close();
    ImGui_ImplOpenGL3_Shutdown();
    ImGui_ImplGlfw_Shutdown();
    glfwDestroyWindow(window_);
    window_ = nullptr;
  }

  GLFWwindow* window_ = nullptr;
  std::string title_, description_;
  int width_ = 0, height_ = 0;
  std::optional<std::pair<int, int>> at_;
  DrawnFrame drawn_;
  KeptPicture picture_;
  X11Part small_;
  bool same_ = false;  // the last frame looked like the one before, or was shown without a swap
  double begun_ = 0;   // when it began
  bool had_event_ = false;
};

}  // namespace

bool has_display() {
  const auto set = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0';
  };
  return set("DISPLAY") || set("WAYLAND_DISPLAY");
}

bool within_reach(const Area& window, std::span<const Area> monitors) {
  constexpr int kWide = 120, kHigh = 24;  // of the upper edge, to take hold of
  return std::ranges::any_of(monitors, [&](const Area& m) {
    const int left = std::max(window.x, m.x);
    const int right = std::min(window.x + window.width, m.x + m.width);
    return right - left >= kWide && window.y >= m.y && window.y + kHigh <= m.y + m.height;
  });
}

Area fitted(Area window, std::span<const Area> monitors) {
  int width = 0, height = 0;
  for (const Area& m : monitors) {
    width = std::max(width, m.width);
    height = std::max(height, m.height);
  }
  if (width > 0) window.width = std::min(window.width, width);
  if (height > 0) window.height = std::min(window.height, height);
  return window;
}

Result<std::unique_ptr<Platform>> make_window(const std::string& title, int width, int height,
                                              std::optional<std::pair<int, int>> at) {
  auto window = std::make_unique<Window>();
  if (auto ok = window->open(title, width, height, at); !ok) return ok.error();
  return std::unique_ptr<Platform>(std::move(window));
}

}  // namespace attnscope::gui
