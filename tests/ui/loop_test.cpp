// Keys that come faster than frames: none is lost, none is taken for another, and the loop does not
// sleep over them.
#include "app/gui/loop.h"

#include <gtest/gtest.h>
#include <imgui.h>

#include <chrono>
#include <thread>
#include <vector>

#include "app/views/op_order.h"
#include "tests/ui/headless_app.h"

namespace attnscope::gui {
namespace loop_test {

// A window whose user does something once and then watches. It closes when the loop would wait for
// an event: there will be none.
class StillWindow final : public Platform {
 public:
  explicit StillWindow(std::function<void()> act) : act_(std::move(act)) {}

  bool begin_frame(double wait) override {
    constexpr double kLongest = 0.5;  // of a wait that ends by itself: a session that computes
    if (wait < 0 || wait > kLongest) {
      if (act_ == nullptr) return false;
      act_();
      act_ = nullptr;
      event_ = true;
    } else {
      event_ = false;
    }
    // As slow as a software renderer.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ImGui::GetIO().DeltaTime = 1.0f / 50;
    return true;
  }
  bool had_event() const override { return event_; }
  Result<void> render() override {
    HeadlessApp::serve_textures();
    return {};
  }
  Image read_pixels() override { return {}; }
  void wake() override {}
  Result<void> recreate() override { return {}; }
  Result<void> resize(int, int) override { return {}; }
  float content_scale() const override { return 1; }
  std::string description() const override { return "none"; }

 private:
  std::function<void()> act_;
  bool event_ = false;
};

void press(ImGuiKey key) {
  ImGui::GetIO().AddKeyEvent(key, true);
  ImGui::GetIO().AddKeyEvent(key, false);
}

TEST(Loop, ThirtyQuickPressesAreThirtyOpsWithoutAnotherEvent) {
  HeadlessApp app;
  Workbench& bench = app.bench();
  ASSERT_TRUE(app->commands().run("cursor.goto=5/1/attn_norm"));
  app.settle();
  const SessionInfo& info = *bench.snapshot()->info;
  Place wanted = bench.cursor();
  ASSERT_EQ(wanted, (Place{5, 1, AS_OP_ATTN_NORM}));
  for (int i = 0; i < 30; ++i) wanted = *place_after(info, wanted);
  StillWindow window([] {
    for (int i = 0; i < 30; ++i) press(ImGuiKey_RightArrow);
  });
  ASSERT_TRUE(run_loop(app.app(), window, {}, [] {}));
  bench.wait_idle();
  EXPECT_EQ(bench.cursor(), wanted);
}

// What the events of one frame do, with those of the frames before and after on their own.
Place after(const std::vector<std::pair<ImGuiKey, bool>>& frames_before,
            const std::vector<std::pair<ImGuiKey, bool>>& one_frame) {
  HeadlessApp app;
  EXPECT_TRUE(app->commands().run("cursor.goto=5/3/wo_b"));
  app.settle();
  for (const auto& [key, down] : frames_before) {
    ImGui::GetIO().AddKeyEvent(key, down);
    app.frame();
  }
  for (const auto& [key, down] : one_frame) ImGui::GetIO().AddKeyEvent(key, down);
  for (int i = 0; i < 8; ++i) app.frame();
  app.settle();
  return app.bench().cursor();
}

TEST(Loop, ModifiersAreThoseOfTheMomentAKeyWasPressed) {
  const Place step_back{4, 3, AS_OP_WO_B}, op_back{5, 3, AS_OP_WO_A};
  constexpr ImGuiKey kCtrl = ImGuiMod_Ctrl, kLeft = ImGuiKey_LeftArrow;
  EXPECT_EQ(after({}, {{kCtrl, true}, {kLeft, true}, {kLeft, false}, {kCtrl, false}}), step_back);
  EXPECT_EQ(after({}, {{kCtrl, true}, {kLeft, true}, {kCtrl, false}, {kLeft, false}}), step_back);
  EXPECT_EQ(after({{kCtrl, true}}, {{kLeft, true}, {kCtrl, false}, {kLeft, false}}), step_back)
      << "Ctrl was held before, and let go in the frame of Left";
  EXPECT_EQ(after({}, {{kLeft, true}, {kCtrl, true}, {kLeft, false}, {kCtrl, false}}), op_back)
      << "Ctrl came after Left";
}

}  // namespace loop_test
}  // namespace attnscope::gui
