#include "app/gui/loop.h"

#include <imgui.h>

#include <algorithm>
#include <chrono>
#include <deque>

#include "app/gui/input_queue.h"
#include "app/text/say.h"

namespace attnscope::gui {
namespace {

constexpr double kActiveSeconds = 0.5;  // frames go on this long after an event: hover delays
constexpr int kActiveFrames = 4;        // and at least as many,
constexpr int kQuietFrames = 2;         // or as many after the mouse moved
constexpr double kHoverWait = 0.1;      // between them where only the mouse moved
constexpr double kBusyWait = 0.1;       // between frames while the session computes
constexpr double kTypingWait = 0.4;     // the caret blinks
constexpr double kUnseenSeconds = 0.1;  // frames that take up input go on so long without a picture

// part: in ImGui's units, which may be fewer than pixels.
Image cut_out(const Image& image, const ImVec4& part) {
  const ImVec2 scale = ImGui::GetIO().DisplayFramebufferScale;
  const auto within = [](float at, int end) { return std::clamp(static_cast<int>(at), 0, end); };
  const int left = within(part.x * scale.x, image.width);
  const int right = within(part.z * scale.x, image.width);
  const int top = within(part.y * scale.y, image.height);
  const int bottom = within(part.w * scale.y, image.height);
  if (right <= left || bottom <= top) return image;  // beside the screen
  Image out{right - left, bottom - top, {}};
  const auto row = static_cast<std::size_t>(image.width) * 3;
  for (int y = top; y < bottom; ++y) {
    const auto* from = image.rgb.data() + static_cast<std::size_t>(y) * row;
    out.rgb.insert(out.rgb.end(), from + static_cast<std::ptrdiff_t>(left) * 3,
                   from + static_cast<std::ptrdiff_t>(right) * 3);
  }
  return out;
}

class Loop {
 public:
  Loop(App& app, Platform& platform, const std::vector<std::string>& commands)
      : app_(app), platform_(platform), commands_(commands.begin(), commands.end()) {}

  Result<void> run(const std::function<void()>& first_picture) {
    stay_active();
    bool seen = false;
    while (!app_.shell().wants_close()) {
      if (!platform_.begin_frame(wait())) {
        if (!stays()) break;
        continue;
      }
      --frames_left_;
      if (platform_.had_event()) {
        stay_active(app_.shell().quiet() ? kQuietFrames : kActiveFrames);
      }
      if (app_.frame()) stay_active();
      take_up_input();
      if (auto ok = show(); !ok) return ok;
      if (!seen && app_.bench().snapshot() != nullptr) {
        seen = true;
        first_picture();
      } else {
        run_next_command(seen);
      }
    }
    const ImVec2 size = ImGui::GetIO().DisplaySize;
    app_.settings().window_width = static_cast<int>(size.x);
    app_.settings().window_height = static_cast<int>(size.y);
    app_.settings().window_at = platform_.place();
    app_.shell().save();
    return {};
  }

 private:
  // Whether a window that was to be closed asks first.
  bool stays() {
    if (auto ok = app_.commands().run("app.quit"); !ok || app_.shell().wants_close()) return false;
    platform_.keep_open();
    stay_active();
    return true;
  }

  // Layout and shortcuts need some frames after a change, however slow these are.
  void stay_active(int frames = kActiveFrames) {
    active_until_ = now_seconds() + kActiveSeconds;
    frames_left_ = std::max(frames_left_, frames);
  }

  double wait() const {
    if (input_waits()) return 0;
    if (frames_left_ > 0 || app_.shell().animating()) return 0;
    if (now_seconds() < active_until_) return app_.shell().quiet() ? kHoverWait : 0;
    if (app_.bench().busy() || !commands_.empty()) return kBusyWait;
    if (ImGui::GetIO().WantTextInput) return kTypingWait;
    double due = -1;
    for (const double seconds : {app_.shell().seconds_to_save(), app_.shell().seconds_to_look()}) {
      if (seconds > 0 && (due < 0 || seconds < due)) due = seconds;
    }
    return due;
  }

  // A frame takes up one change of a key: those of quick fingers are not shown one by one.
  void take_up_input() {
    const double end = now_seconds() + kUnseenSeconds;
    while (input_waits() && now_seconds() < end) {
      ImGui::GetIO().DeltaTime = kUnseenFrame;
      app_.frame();
      stay_active();
    }
  }

  void run_next_command(bool seen) {
    Workbench& bench = app_.bench();
    if (commands_.empty() || bench.busy()) return;
    bench.wait_idle();                                 // takes what was published since the frame
    if (!seen && bench.snapshot() != nullptr) return;  // in the next frame
    const std::string command = std::move(commands_.front());
    commands_.pop_front();
    if (auto ok = app_.commands().run(command); !ok) {
      complain(app_, ok.error());
      commands_.clear();
    }
    stay_active();
  }

  Result<void> show() {
    auto drawn = platform_.render();
    if (!drawn || app_.shell().take_reset_graphics()) {
      if (!drawn) {
        say(stderr, "attnscope: {}; starting it anew\n", drawn.error().message);
        app_.bench().say(Message::Kind::kWarning, drawn.error().message + "; it was made anew");
      }
      if (auto ok = platform_.recreate(); !ok) return ok;
      app_.shell().set_graphics(platform_.description());
      stay_active();
      return {};
    }
    write_due_picture(app_, platform_);
    return {};
  }

  App& app_;
  Platform& platform_;
  std::deque<std::string> commands_;
  double active_until_ = 0;
  int frames_left_ = 0;
};

}  // namespace

double now_seconds() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

void write_due_picture(App& app, Platform& platform) {
  const auto [file, panel] = app.shell().take_screenshot();
  if (file.empty()) return;
  Image image = platform.read_pixels();
  if (const auto part = app.shell().rectangle_of(panel)) image = cut_out(image, *part);
  const auto written = write_png(image, file);
  app.bench().say(written ? Message::Kind::kInfo : Message::Kind::kError,
                  written ? "Picture written to " + file : written.error().text());
}

void complain(App& app, const Error& error) {
  say(stderr, "attnscope: {}\n", error.text());
  app.bench().say(Message::Kind::kError, error.text());
}

Result<void> run_loop(App& app, Platform& platform, const std::vector<std::string>& commands,
                      const std::function<void()>& first_picture) {
  return Loop(app, platform, commands).run(first_picture);
}

}  // namespace attnscope::gui
