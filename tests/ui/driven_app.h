// The app driven as a user does it: imgui_test_engine moves the mouse, clicks and types over the
// screen without graphics.
//
//   DrivenApp app;
//   app.drive([&](User& user) {
//     user.ctx->ItemClick("**/Apply##scenario.apply");
//     EXPECT_EQ(app.bench().cursor().step, 3);
//   });
#pragma once

#include <gtest/gtest.h>
#include <imgui_internal.h>
#include <imgui_te_context.h>
#include <imgui_te_engine.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/ui/headless_app.h"

namespace attnscope::gui {

class DrivenApp;

// What a test does with the app. Lives on the engine's thread, while the app waits for it.
class User {
 public:
  User(DrivenApp& app, ImGuiTestContext* context) : ctx(context), app_(app) {}

  // Until the session is idle and its last picture is on the screen.
  void settle();
  // Frames, and nothing else.
  void wait(int frames = 2) { ctx->Yield(frames); }
  // Until a panel that is on the screen has ended what it does on threads of its own.
  void wait_for(const char* panel);
  // The panel's window, in front of the tabs beside it.
  void show(const char* panel);
  // Names of items are looked for in this panel from now on.
  void look_at(const char* panel);
  // Full name of a panel's window.
  std::string window(const char* panel) const;
  // Of an item that is there; a failure and an empty rectangle otherwise.
  ImRect rect(const std::string& item);
  // Numbers N of the items PREFIXN that are on the screen, such as "##row 7", ascending.
  std::vector<std::int64_t> numbers(const std::string& prefix);
  // A click at a place of an item, each from 0 to 1.
  void click(const std::string& item, float x, float y);
  void click(ImVec2 at);
  void drag(ImVec2 from, ImVec2 to);
  void keys(ImGuiKeyChord chord);
  // Every text on the screen, front tabs alone; what panels draw as pictures is not in it.
  std::string screen();

  ImGuiTestContext* const ctx;

 private:
  DrivenApp& app_;
};

class DrivenApp {
 public:
  explicit DrivenApp(References references = References::kSim);
  ~DrivenApp();

  // Runs to the end of `act`; what the engine could not do (no such item, ..) is a failure.
  void drive(const std::function<void(User&)>& act);

  App* operator->() { return app_->operator->(); }
  Workbench& bench() { return app_->bench(); }
  Selection selection() { return app_->bench().selection(); }
  // Whether a command that is a switch is on.
  bool checked(std::string_view command);
  bool said(std::string_view text);  // some message contains it

 private:
  friend class User;
  struct Stop {
    void operator()(ImGuiTestEngine* engine) const { ImGuiTestEngine_DestroyContext(engine); }
  };
  std::unique_ptr<ImGuiTestEngine, Stop> engine_;  // ends after the context of the app
  std::unique_ptr<HeadlessApp> app_;
  int runs_ = 0;
  bool log_frame_ = false;  // the next frame's texts go to the clipboard
};

}  // namespace attnscope::gui
