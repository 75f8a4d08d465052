// The app as a whole: context, platform, shell and loop, in a window or off screen.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "app/gui/overlay.h"
#include "app/gui/panel.h"
#include "app/gui/platform.h"
#include "app/gui/shell.h"
#include "app/workbench/workbench.h"

namespace attnscope::gui {

struct GuiOptions {
  std::string scenario;  // name or file; empty = in a window what was open last, else "default"
  ModelChoice model;
  References references = References::kBoth;
  std::vector<std::string> lanes = {"cpu"};  // as LaneSelector::make; a capture has its own
  std::string layout;                        // empty = the one that was shown last
  std::string at;                            // STEP/LAYER/OP
  std::vector<std::string> commands;         // run in this order once the first picture is there
  std::string screenshot;                    // write one picture and end
  std::string tour;                          // folder: write all pictures of the tour and end
  std::string report;                        // JSON of what was run, written with a picture
  int width = 0, height = 0;                 // 0 = as it was last, or 1600 x 1000
  int threads = 0;
};

// Panels come from above this layer.
struct GuiParts {
  std::function<std::vector<std::unique_ptr<Panel>>()> panels;
};

// Without a display, and without a picture being asked for, writes the picture and the report into
// the state folder and says where.
Result<as_status> run_gui(const GuiOptions& options, const GuiParts& parts);

// Everything that a screen needs, without a platform: for run_gui, tests and benchmarks. The ImGui
// context is made here and ends with it.
class App {
 public:
  struct Options {
    std::string state_folder;   // settings, layouts, kept sessions; empty = nothing is kept
    std::string cache_folder;   // kept sessions; empty = as state_folder
    bool keep_settings = true;  // false: settings are the built-in ones and stay unwritten
    int threads = 0;
    std::function<void()> on_change;
  };
  App(const Options& options, const GuiParts& parts);
  ~App();

  Workbench& bench() { return *bench_; }
  Settings& settings() { return settings_; }
  CommandRegistry& commands() { return commands_; }
  Shell& shell() { return *shell_; }
  // Problems met while starting: settings, fonts.
  const std::vector<std::string>& problems() const { return problems_; }
  // Takes new pictures, draws a frame with ImGui up to ImGui::Render(). True when the session
  // showed something new.
  bool frame();

 private:
  Settings settings_;
  std::vector<std::string> problems_;
  std::atomic<bool> changed_{true};  // by another thread, since the last frame
  std::unique_ptr<Workbench> bench_;
  CommandRegistry commands_;
  std::unique_ptr<Shell> shell_;
};

// Writes the tour: every layout, size, theme and state that is worth looking at.
Result<void> write_tour(App& app, Platform& platform, const std::string& folder);

// Waits until the session is idle, draws until nothing changes, and reads the picture.
Result<Image> settled_picture(App& app, Platform& platform);

}  // namespace attnscope::gui
