// The timeline under the mouse: cells are clicked, the wheel zooms, a drag pans, keys do the same.
#include <set>

#include "tests/ui/driven_app.h"

namespace attnscope::gui {
namespace driven_timeline_test {

// Enough steps that not all of them fit at their widest.
void open_long_session(DrivenApp& app, User& user) {
  RunSetup setup;
  setup.scenario = small_scenario(40, 60);
  setup.references = References::kNone;
  app.bench().open(std::move(setup), true);
  user.settle();
  ASSERT_TRUE(app->commands().run("run.until_end"));
  user.settle();
  ASSERT_GT(app.bench().snapshot()->steps.size(), 50u);
  user.look_at("timeline");
}

// Step that a click at this part of the width goes to.
std::int64_t step_at(DrivenApp& app, User& user, float x) {
  user.click("steps", x, 0.4f);
  user.settle();
  EXPECT_NE(app.bench().op(), nullptr) << "the step is there to see, or was replayed";
  return app.bench().cursor().step;
}

TEST(Timeline, AClickGoesToStepAndLayer) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    open_long_session(app, user);
    const auto steps = static_cast<std::int64_t>(app.bench().snapshot()->steps.size());
    std::int64_t last = -1;
    for (const float x : {0.2f, 0.4f, 0.6f, 0.8f}) {
      const std::int64_t step = step_at(app, user, x);
      EXPECT_GT(step, last);
      last = step;
    }
    EXPECT_NEAR(static_cast<double>(step_at(app, user, 0.5f)), static_cast<double>(steps) / 2,
                static_cast<double>(steps) * 0.15);
    std::set<int> layers;
    int before = -2;
    for (int percent = 25; percent <= 70; percent += 5) {
      user.click("steps", 0.5f, static_cast<float>(percent) / 100);
      user.settle();
      EXPECT_GE(app.bench().cursor().layer, before) << "layers lie below one another";
      before = app.bench().cursor().layer;
      layers.insert(before);
    }
    EXPECT_GE(layers.size(), 4u);
    // Below the cells a click changes the step alone.
    const Place place = app.bench().cursor();
    user.click("steps", 0.3f, 0.95f);
    user.settle();
    EXPECT_LT(app.bench().cursor().step, place.step);
    EXPECT_EQ(app.bench().cursor().layer, place.layer);
    EXPECT_EQ(app.bench().cursor().op, place.op);
  });
}

TEST(Timeline, TheWheelZoomsAndADragPans) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    open_long_session(app, user);
    EXPECT_TRUE(app.checked("timeline.fit"));
    const std::int64_t wide = step_at(app, user, 0.8f) - step_at(app, user, 0.2f);
    const ImRect at = user.rect("steps");
    const ImVec2 middle((at.Min.x + at.Max.x) / 2, at.Min.y + 0.4f * at.GetHeight());
    user.ctx->MouseMoveToPos(middle);
    user.ctx->MouseWheelY(5);
    user.wait();
    EXPECT_FALSE(app.checked("timeline.fit"));
    const std::int64_t left = step_at(app, user, 0.2f);
    EXPECT_LT(step_at(app, user, 0.8f) - left, wide) << "fewer steps, wider columns";

    const Place cursor = app.bench().cursor();
    user.drag(middle, ImVec2(middle.x + 300, middle.y));
    user.settle();
    EXPECT_EQ(app.bench().cursor(), cursor) << "a drag is no click";
    EXPECT_FALSE(app.checked("timeline.follow"));
    const std::int64_t panned = step_at(app, user, 0.2f);
    EXPECT_LT(panned, left) << "what was at the left came into sight";
    user.drag(middle, ImVec2(middle.x - 300, middle.y));
    EXPECT_NEAR(static_cast<double>(step_at(app, user, 0.2f)), static_cast<double>(left), 1);

    user.keys(ImGuiKey_0);
    EXPECT_TRUE(app.checked("timeline.fit"));
    EXPECT_NEAR(static_cast<double>(step_at(app, user, 0.8f) - step_at(app, user, 0.2f)),
                static_cast<double>(wide), 1);
    user.keys(ImGuiKey_Equal);
    EXPECT_FALSE(app.checked("timeline.fit"));
    const bool follows = app.checked("timeline.follow");
    user.keys(ImGuiKey_F);
    EXPECT_NE(app.checked("timeline.follow"), follows);
    user.ctx->ItemClick("**/All##timeline.fit");
    user.wait();
    EXPECT_TRUE(app.checked("timeline.fit"));
  });
}

TEST(Timeline, TheMapOfAllStepsMovesWhatIsInSight) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    open_long_session(app, user);
    for (int i = 0; i < 3; ++i) user.keys(ImGuiKey_Equal);
    user.wait();
    ASSERT_FALSE(app.checked("timeline.fit"));
    const Place cursor = app.bench().cursor();
    const auto steps = static_cast<std::int64_t>(app.bench().snapshot()->steps.size());
    const auto in_map = [&](float x) {
      const ImRect at = user.rect("steps");
      user.click(ImVec2(at.Min.x + x * at.GetWidth(), at.Min.y + 3));
      user.wait();
    };
    in_map(0.15f);
    EXPECT_EQ(app.bench().cursor(), cursor) << "what is in sight moves, the cursor does not";
    const std::int64_t early = step_at(app, user, 0.5f);
    EXPECT_LT(early, steps / 3);
    in_map(0.75f);
    EXPECT_GT(step_at(app, user, 0.5f), steps / 2);
  });
}

TEST(Timeline, FirstFailureIsOneClickAway) {
  DrivenApp app;
  app.drive([&](User& user) {
    app.bench().plant("window_off_by_one");
    user.settle();
    const Place wrong = app.bench().cursor();
    ASSERT_EQ(wrong.op, AS_OP_SWA_INDEX);
    ASSERT_TRUE(app->commands().run("cursor.goto=0/1/q_b_proj"));
    user.settle();
    user.look_at("timeline");
    user.ctx->ItemClick("**/\xef\x86\x88 First failure##cursor.first_failure");
    user.settle();
    EXPECT_EQ(app.bench().cursor(), wrong);
  });
}

}  // namespace driven_timeline_test
}  // namespace attnscope::gui
