// Frames without a display: an EGL context that has no surface, drawing into a frame buffer.
#include <EGL/egl.h>
#include <EGL/eglext.h>
#include <GL/gl.h>
#include <GL/glext.h>
#include <fmt/format.h>
#include <imgui.h>
#include <imgui_impl_opengl3.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "app/gui/gl_frame.h"
#include "app/gui/platform.h"

#ifndef EGL_PLATFORM_SURFACELESS_MESA
#define EGL_PLATFORM_SURFACELESS_MESA 0x31DD
#endif

namespace attnscope::gui {
namespace {

constexpr const char* kAdvice =
    "set LIBGL_ALWAYS_SOFTWARE=1 to draw on the CPU; that is Mesa's software renderer (Debian, "
    "Ubuntu: libegl1 libegl-mesa0 libgl1-mesa-dri)";

class Offscreen final : public Platform {
 public:
  Offscreen(int width, int height) : width_(width), height_(height) {}
  ~Offscreen() override { close(); }

  Result<void> open() {
    const auto failed = [](const char* what) {
      return Error{AS_NO_ENVIRONMENT,
                   fmt::format("cannot draw without a display: {} failed (EGL error 0x{:x})", what,
                               static_cast<unsigned>(eglGetError())),
                   kAdvice};
    };
    display_ = eglGetPlatformDisplay(EGL_PLATFORM_SURFACELESS_MESA, EGL_DEFAULT_DISPLAY, nullptr);
    if (display_ == EGL_NO_DISPLAY) display_ = eglGetDisplay(EGL_DEFAULT_DISPLAY);
    if (display_ == EGL_NO_DISPLAY) return failed("eglGetPlatformDisplay");
    if (eglInitialize(display_, nullptr, nullptr) == EGL_FALSE) {
      display_ = EGL_NO_DISPLAY;
      return failed("eglInitialize");
    }
    if (eglBindAPI(EGL_OPENGL_API) == EGL_FALSE) return failed("eglBindAPI");
    const EGLint wanted[] = {EGL_RENDERABLE_TYPE, EGL_OPENGL_BIT, EGL_NONE};
    EGLConfig config = nullptr;
    EGLint count = 0;
    if (eglChooseConfig(display_, wanted, &config, 1, &count) == EGL_FALSE || count == 0) {
      config = nullptr;  // EGL_KHR_no_config_context
    }
    const EGLint version[] = {EGL_CONTEXT_MAJOR_VERSION,
                              3,
                              EGL_CONTEXT_MINOR_VERSION,
                              3,
                              EGL_CONTEXT_OPENGL_PROFILE_MASK,
                              EGL_CONTEXT_OPENGL_CORE_PROFILE_BIT,
                              EGL_NONE};
    context_ = eglCreateContext(display_, config, EGL_NO_CONTEXT, version);
    if (context_ == EGL_NO_CONTEXT) return failed("eglCreateContext for OpenGL 3.3 core");
    if (eglMakeCurrent(display_, EGL_NO_SURFACE, EGL_NO_SURFACE, context_) == EGL_FALSE) {
      return failed("eglMakeCurrent");
    }
    glGenRenderbuffers(1, &colour_);
    glBindRenderbuffer(GL_RENDERBUFFER, colour_);
    glRenderbufferStorage(GL_RENDERBUFFER, GL_RGBA8, width_, height_);
    glGenFramebuffers(1, &frame_);
    glBindFramebuffer(GL_FRAMEBUFFER, frame_);
    glFramebufferRenderbuffer(GL_FRAMEBUFFER, GL_COLOR_ATTACHMENT0, GL_RENDERBUFFER, colour_);
    if (auto ok = check_frame(); !ok) return ok;
    if (!ImGui_ImplOpenGL3_Init("#version 330 core")) {
      return Error{AS_NO_ENVIRONMENT, "the renderer does not start on this OpenGL", kAdvice};
    }
    started_ = true;
    description_ = gl_description();
    return {};
  }

  bool begin_frame(double wait) override {
    std::unique_lock lock(mutex_);
    if (wait != 0 && !woken_) {
      const auto limit = std::chrono::duration<double>(wait < 0 ? 1.0 : wait);
      wake_.wait_for(lock, limit, [&] { return woken_; });
    }
    had_event_ = woken_;
    woken_ = false;
    lock.unlock();
    ImGuiIO& io = ImGui::GetIO();
    io.DisplaySize = ImVec2(static_cast<float>(width_), static_cast<float>(height_));
    const auto now = std::chrono::steady_clock::now();
    const double passed = std::chrono::duration<double>(now - last_).count();
    io.DeltaTime = static_cast<float>(passed > 1e-4 && passed < 1 ? passed : 1.0 / 60);
    last_ = now;
    ImGui_ImplOpenGL3_NewFrame();
    return true;
  }
  bool had_event() const override { return had_event_; }

  Result<void> render() override {
    glBindFramebuffer(GL_FRAMEBUFFER, frame_);
    const PixelArea part = drawn_.changed(width_, height_);
    if (part.empty()) return {};
    drawn_.draw(width_, height_, part);
    glFinish();
    return {};
  }
  Image read_pixels() override { return read_frame(width_, height_); }
  void wake() override {
    {
      std::lock_guard lock(mutex_);
      woken_ = true;
    }
    wake_.notify_all();
  }
  Result<void> recreate() override {
    drawn_.forget();
    close();
    return open();
  }
  Result<void> resize(int width, int height) override {
    width_ = width;
    height_ = height;
    drawn_.forget();
    glBindRenderbuffer(GL_RENDERBUFFER, colour_);
    glRenderbufferStorage(GL_RENDERBUFFER, GL_RGBA8, width_, height_);
    return check_frame();
  }
  float content_scale() const override { return 1; }
  std::string description() const override { return description_ + ", off screen"; }

 private:
  Result<void> check_frame() const {
    if (glCheckFramebufferStatus(GL_FRAMEBUFFER) == GL_FRAMEBUFFER_COMPLETE) return {};
    return Error{AS_NO_ENVIRONMENT, fmt::format("no frame buffer of {}x{} pixels", width_, height_),
                 "ask for a smaller --size"};
  }

  void close() {
    if (started_) ImGui_ImplOpenGL3_Shutdown();
    started_ = false;
    if (context_ != EGL_NO_CONTEXT) {
      glDeleteFramebuffers(1, &frame_);
      glDeleteRenderbuffers(1, &colour_);
      eglMakeCurrent(display_, EGL_NO_SURFACE, EGL_NO_SURFACE, EGL_NO_CONTEXT);
      eglDestroyContext(display_, context_);
      context_ = EGL_NO_CONTEXT;
    }
    if (display_ != EGL_NO_DISPLAY) eglTerminate(display_);
    display_ = EGL_NO_DISPLAY;
  }

  int width_, height_;
  EGLDisplay display_ = EGL_NO_DISPLAY;
  EGLContext context_ = EGL_NO_CONTEXT;
  unsigned frame_ = 0, colour_ = 0;
  bool started_ = false;
  std::string description_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable wake_;
  DrawnFrame drawn_;
  bool woken_ = false, had_event_ = false;
};

}  // namespace

Result<std::unique_ptr<Platform>> make_offscreen(int width, int height) {
  auto offscreen = std::make_unique<Offscreen>(width, height);
  if (auto ok = offscreen->open(); !ok) return ok.error();
  return std::unique_ptr<Platform>(std::move(offscreen));
}

}  // namespace attnscope::gui
