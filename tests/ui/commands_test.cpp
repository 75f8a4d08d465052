// Every command there is runs without harm; those that move something move it.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "app/gui/theme.h"
#include "tests/ui/headless_app.h"

namespace attnscope::gui {
namespace {

// A good value for every command that takes one. A new command of that kind must be added here.
const std::map<std::string, std::string>& values() {
  static const std::map<std::string, std::string> all = {
      {"cursor.goto", "1/2/sparse_attention"},
      {"run.step", "3"},
      {"lane.set", "cpu"},
      {"references.set", "sim"},
      {"select.token", "0/1"},
      {"select.head", "1"},
      {"select.block", "1"},
      {"select.entry", "0"},
      {"panel.close", "events"},
      {"settings.theme", "light"},
      {"settings.scale", "1.25"},
      {"settings.colour_map", "grey"},
      {"settings.trace_budget", "64"},
      {"shortcut.set", "op.forward:Ctrl+Shift+K"},
      {"app.screenshot", "/nowhere/picture.png"},
      {"tensor.view", "difference"},
      {"tensor.as", "numbers"},
      {"lesson.plant", "window_off_by_one"},
  };
  return all;
}

// Commands that replace the session or need a file are tested by themselves.
const std::set<std::string>& apart() {
  static const std::set<std::string> ids = {"app.quit", "scenario.open", "scenario.save_as",
                                            "scenario.save"};
  return ids;
}

TEST(Commands, EachOneRunsAndLeavesTheAppUsable) {
  HeadlessApp app;
  std::vector<std::string> ids;
  for (const Command& command : app->commands().all()) ids.push_back(command.id);
  ASSERT_GT(ids.size(), 50u);
  for (const std::string& id : ids) {
    if (apart().count(id) != 0) continue;
    const Command* command = app->commands().find(id);
    ASSERT_NE(command, nullptr) << id;
    std::string text = id;
    const auto value = values().find(id);
    if (value != values().end()) {
      text += "=" + value->second;
    }
    SCOPED_TRACE(text);
    const bool enabled = !command->enabled || command->enabled();
    const auto ok = app->commands().run(text);
    if (enabled && value != values().end()) {
      EXPECT_TRUE(ok) << (ok ? "" : ok.error().text());
    } else if (!enabled) {
      EXPECT_FALSE(ok);
    }
    app.frame();
    app.settle();
    ImGui::GetIO().AddKeyEvent(ImGuiKey_Escape, true);
    app.frame();
    ImGui::GetIO().AddKeyEvent(ImGuiKey_Escape, false);
    app.frame();
  }
  EXPECT_NE(app.bench().snapshot(), nullptr);
}

TEST(Commands, UnknownOnesAreRefusedWithTheNearest) {
  HeadlessApp app(References::kNone);
  const auto wrong = app->commands().run("step.forwrd");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, AS_USAGE);
  EXPECT_NE(wrong.error().text().find("step.forward"), std::string::npos);
  EXPECT_FALSE(app->commands().run("cursor.goto=1/2"));
  EXPECT_FALSE(app->commands().run("select.head=99999"));
  EXPECT_FALSE(app->commands().run("settings.scale=nan"));
  EXPECT_FALSE(app->commands().run("settings.theme=/no/such/theme.json"));
}

TEST(Commands, StepsMoveTheCursorForwardAndBack) {
  HeadlessApp app;
  const Place start = app.bench().cursor();
  ASSERT_GE(start.step, 0);
  ASSERT_TRUE(app->commands().run("step.back"));
  app.settle();
  EXPECT_EQ(app.bench().cursor(), (Place{start.step - 1, start.layer, start.op}));
  ASSERT_TRUE(app->commands().run("step.forward"));
  app.settle();
  EXPECT_EQ(app.bench().cursor(), start);
  ASSERT_TRUE(app->commands().run("op.forward"));
  app.settle();
  EXPECT_NE(app.bench().cursor(), start);
  ASSERT_TRUE(app->commands().run("op.back"));
  app.settle();
  EXPECT_EQ(app.bench().cursor(), start);
  ASSERT_TRUE(app->commands().run("cursor.first"));
  app.settle();
  EXPECT_EQ(app.bench().cursor().step, 0);
  EXPECT_NE(app.bench().op(), nullptr) << "the step was replayed and is there to see";
}

TEST(Commands, SettingsAreUndone) {
  HeadlessApp app(References::kNone);
  const Settings before = app->settings();
  ASSERT_TRUE(app->commands().run("settings.theme=light"));
  ASSERT_TRUE(app->commands().run("settings.scale=1.5"));
  app.frame();
  EXPECT_FALSE(theme().dark);
  ASSERT_TRUE(app->commands().run("settings.undo"));
  ASSERT_TRUE(app->commands().run("settings.undo"));
  app.frame();
  EXPECT_EQ(app->settings(), before);
  EXPECT_TRUE(theme().dark);
  ASSERT_TRUE(app->commands().run("settings.redo"));
  EXPECT_EQ(app->settings().theme, "light");
}

TEST(Commands, APlantedBugIsNamedAndTakenOut) {
  HeadlessApp app;
  app.bench().plant("window_off_by_one");
  app.settle();
  app.settle();
  const OpTrace* op = app.bench().op();
  ASSERT_NE(op, nullptr);
  EXPECT_EQ(op->worst, Verdict::kWrong);
  EXPECT_EQ(op->place.op, AS_OP_SWA_INDEX);
  app.bench().remove_planted();
  app.settle();
  ASSERT_NE(app.bench().snapshot(), nullptr);
  for (const auto& step : app.bench().snapshot()->steps) {
    for (const TapResult& r : step->results) EXPECT_NE(r.verdict, Verdict::kWrong) << r.tap;
  }
}

}  // namespace
}  // namespace attnscope::gui
