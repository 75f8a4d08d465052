// Histories of numbers: asked for by a right click, shown step by step, completed by running again.
#include <fmt/format.h>

#include "tests/ui/driven_app.h"

namespace attnscope::gui {
namespace driven_history_test {

// What the menu that a right click opens has to offer.
void choose(User& user, const std::string& item) {
  user.wait(3);
  user.ctx->SetRef("//$FOCUSED");
  user.ctx->ItemClick(("**/" + item).c_str());
  user.settle();
}

TEST(History, ARightClickOnANumberAsksForIt) {
  DrivenApp app(References::kSim);
  app.drive([&](User& user) {
    ASSERT_TRUE(app->commands().run("cursor.goto=7/3/sparse_attention"));
    user.settle();
    user.show("sink");
    user.ctx->MouseMove("**/head 2");
    user.ctx->MouseClick(ImGuiMouseButton_Right);
    user.wait(2);
    EXPECT_EQ(app.selection().head, 2) << "what was clicked is what the menu speaks of";
    choose(user, "History of this number: sink mass##history.sink");
    // Where there is room for its table.
    ASSERT_TRUE(app->commands().run("layout.compare"));
    user.show("history");
    EXPECT_NE(user.screen().find("sink mass of head 2, layer 3"), std::string::npos);
    // A step of its table is gone to.
    const auto steps = user.numbers("##row ");
    ASSERT_GE(steps.size(), 2u);
    user.ctx->ItemClick(fmt::format("**/##row {}", steps.front()).c_str());
    user.settle();
    EXPECT_EQ(app.bench().cursor().step, steps.front());
    // A second number takes its place, until it is removed; the list has both.
    ASSERT_TRUE(app->commands().run("history.time"));
    user.settle();
    EXPECT_NE(user.screen().find("time (\xc2\xb5s) of sparse_attention, layer 3"),
              std::string::npos);
    user.ctx->ItemClick("**/\xef\x80\x8d##remove");
    user.settle();
    EXPECT_EQ(user.screen().find("time (\xc2\xb5s) of"), std::string::npos);
    EXPECT_NE(user.screen().find("sink mass of head 2, layer 3"), std::string::npos);
    ASSERT_TRUE(app->commands().run("history.time"));
    user.settle();
    user.look_at("history");
    user.ctx->ComboClick("##number/sink mass of head 2, layer 3, of long##0");
    user.settle();
    EXPECT_EQ(user.screen().find("time (\xc2\xb5s) of"), std::string::npos);
  });
}

TEST(History, NumbersThatAnotherScenarioHasNotAreMarked) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    ASSERT_TRUE(app->commands().run("cursor.goto=7/3/sparse_attention"));
    ASSERT_TRUE(app->commands().run("layout.compare"));
    ASSERT_TRUE(app->commands().run("history.lse"));
    ASSERT_TRUE(app->commands().run("history.time"));
    user.settle();
    user.look_at("history");
    ASSERT_GE(user.numbers("##row ").size(), 2u);
    const RunSetup first = app.bench().setup();
    RunSetup setup = first;
    setup.scenario.requests.erase(setup.scenario.requests.begin());
    setup.scenario.model.layers = {0, 2};
    setup.scenario.text += " ";  // of another file
    app.bench().open(setup, false);
    user.settle();
    const std::string screen = user.screen();
    EXPECT_NE(screen.find("Not in what is open: layer 3 does not run."), std::string::npos)
        << screen;
    EXPECT_NE(screen.find("layer 3: not here"), std::string::npos) << screen;
    EXPECT_TRUE(user.numbers("##row ").empty()) << "nothing of the run before is shown";
    const auto again = app->commands().run("history.run_again");
    ASSERT_FALSE(again);
    EXPECT_NE(again.error().text().find("layer 3 does not run"), std::string::npos);
    // Where it is there again it is followed on.
    app.bench().open(first, false);
    user.settle();
    ASSERT_TRUE(app->commands().run("run.until_end"));
    user.settle();
    EXPECT_EQ(user.screen().find("Not in what is open"), std::string::npos);
    EXPECT_GE(user.numbers("##row ").size(), 2u);
    // What is removed while it is not there is gone for good.
    app.bench().open(setup, false);
    user.settle();
    ASSERT_TRUE(app->commands().run("history.remove=2"));
    ASSERT_TRUE(app->commands().run("history.remove=1"));
    user.settle();
    EXPECT_NE(user.screen().find("No number is followed"), std::string::npos);
  });
}

TEST(History, StepsWhoseTensorsAreGoneRunAgain) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    app.bench().set_trace_budget(0);  // the newest two steps
    RunSetup setup;
    setup.scenario = small_scenario();
    setup.references = References::kNone;
    app.bench().open(std::move(setup), false);
    user.settle();
    ASSERT_TRUE(app->commands().run("run.until_end"));
    user.settle();
    ASSERT_LT(app.bench().snapshot()->traces.size(), app.bench().snapshot()->steps.size());
    ASSERT_TRUE(app->commands().run("cursor.goto=7/3/sparse_attention"));
    ASSERT_TRUE(app->commands().run("layout.compare"));
    ASSERT_TRUE(app->commands().run("history.lse"));
    user.settle();
    user.look_at("history");
    EXPECT_NE(user.screen().find("can be run again"), std::string::npos);
    const std::size_t before = user.numbers("##row ").size();
    EXPECT_LE(before, 3u);
    const auto gone = app.bench().snapshot()->steps.size() - before;
    user.ctx->ItemClick(fmt::format("**/Run {} steps again##history.run_again", gone).c_str());
    user.wait_for("history");
    EXPECT_EQ(user.numbers("##row ").size(), app.bench().snapshot()->steps.size());
    EXPECT_EQ(user.screen().find("can be run again"), std::string::npos);
    EXPECT_EQ(app.bench().cursor().step, 7) << "the session stays where it is";
  });
}

}  // namespace driven_history_test
}  // namespace attnscope::gui
