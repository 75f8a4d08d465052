// The Plan panel: how to have a plan where there is none, and a bar that selects its token.
#include <algorithm>

#include "app/views/plan_view.h"
#include "tests/ui/driven_app.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope::gui {
namespace driven_plan_test {

void open_plan(DrivenApp& app, User& user, const char* profile) {
  RunSetup setup;
  setup.scenario = small_scenario(90, 4);
  setup.scenario.model.switches = *profile_switches(profile);
  setup.references = References::kNone;
  app.bench().open(std::move(setup), false);
  user.settle();
  app.bench().run_until("to the end", [](const Session&) { return false; });
  user.settle();
  ASSERT_TRUE(app->commands().run("layout.step"));
  ASSERT_TRUE(app->commands().run("cursor.goto=0/1/sparse_attention"));
  user.settle();
  user.show("plan");
  user.wait(4);
}

TEST(DrivenPlan, WithoutOneSaysHowToHaveIt) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    open_plan(app, user, "vllm");
    const std::string screen = user.screen();
    EXPECT_NE(screen.find("attention_plan=flashmla"), std::string::npos) << screen;
  });
}

TEST(DrivenPlan, ABarSelectsTheTokenThatItIsOf) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    open_plan(app, user, "vllm,attention_plan=flashmla,multiprocessors=8");
    const SessionInfo& info = *app.bench().snapshot()->info;
    const StepTrace& step = *app.bench().step();
    const PlanView view = plan_view(info.config, info.layout, step.metadata, 1, -1);
    ASSERT_EQ(view.why_empty, "");
    ASSERT_EQ(view.load.size(), 8u);
    EXPECT_NE(user.screen().find(view.sentence), std::string::npos) << view.sentence;

    user.look_at("plan");
    for (const std::int64_t worker : {std::int64_t{1}, std::int64_t{6}}) {
      const Selection before = app.selection();
      user.click("##gantt", 0.5f, (static_cast<float>(worker) + 0.5f) / 8);
      user.wait(4);
      const Selection after = app.selection();
      EXPECT_NE(after, before);
      const auto picked = std::ranges::find_if(view.bars, [&](const PlanBar& bar) {
        return bar.worker == worker &&
               step.request_of(static_cast<std::int32_t>(bar.row)) == after.request &&
               step.metadata.positions[static_cast<std::size_t>(bar.row)] == after.position;
      });
      EXPECT_NE(picked, view.bars.end()) << after.request << ", " << after.position;
      // What is said of the row and the table below follow.
      if (picked == view.bars.end()) continue;
      const std::string row = "Row " + std::to_string(picked->row) + ": ";
      EXPECT_NE(user.screen().find(row), std::string::npos) << row;
    }
    // A line of the table below selects, too.
    user.ctx->ScrollToBottom(("//" + user.window("plan")).c_str());
    user.wait(4);
    const std::vector<std::int64_t> lines = user.numbers("##row ");
    ASSERT_FALSE(lines.empty());
    // Between two borders of columns, which can be dragged.
    user.click("**/##row " + std::to_string(lines.front()), 0.03f, 0.5f);
    user.wait(4);
    const PlanBar& bar = view.bars[static_cast<std::size_t>(lines.front())];
    EXPECT_EQ(app.selection().position, step.metadata.positions[static_cast<std::size_t>(bar.row)]);
  });
}

}  // namespace driven_plan_test
}  // namespace attnscope::gui
