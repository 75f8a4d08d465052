// The Error panel on a wrong op: what its wrong elements have in common stands below the worst one.
#include <unistd.h>

#include <filesystem>

#include "app/reports/causes_run.h"
#include "app/views/pattern_view.h"
#include "tests/ui/driven_app.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope::gui {
namespace driven_pattern_test {

TEST(DrivenPattern, StandsBelowTheWorstElement) {
  DrivenApp app(References::kSim);
  app.drive([&](User& user) {
    RunSetup setup;
    setup.scenario = small_scenario(90, 4);
    setup.references = References::kSim;
    setup.lanes = {"cpu", "sparse_attention=mutant:lse_in_base_2"};
    app.bench().open(std::move(setup), false);
    user.settle();
    ASSERT_TRUE(app->commands().run("step.forward"));
    user.settle();
    ASSERT_TRUE(app->commands().run("cursor.goto=0/0/sparse_attention"));
    user.show("error");
    user.settle();
    user.wait(4);
    const OpTrace* op = app.bench().op();
    ASSERT_NE(op, nullptr);
    const auto wrong = std::ranges::find(op->results, Verdict::kWrong, &TapResult::verdict);
    ASSERT_NE(wrong, op->results.end());
    const auto findings = pattern_of(*app.bench().step(), *op, *wrong, 64);
    ASSERT_FALSE(findings.empty());
    const std::string screen = user.screen();
    for (const ErrorFinding& f : findings) {
      EXPECT_NE(screen.find(f.sentence), std::string::npos) << f.sentence << "\n" << screen;
    }
  });
}

// A click has the known mistakes tried, and those that give the output stand there; of a capture
// too.
TEST(DrivenPattern, AClickNamesTheMistake) {
  DrivenApp app(References::kSim);
  app.drive([&](User& user) {
    RunSetup setup;
    setup.scenario = small_scenario(90, 4);
    setup.references = References::kSim;
    setup.lanes = {"cpu", "sparse_attention=mutant:lse_in_base_2"};
    app.bench().open(std::move(setup), false);
    user.settle();
    ASSERT_TRUE(app->commands().run("step.forward"));
    user.settle();
    ASSERT_TRUE(app->commands().run("cursor.goto=0/0/attn_norm"));
    user.settle();
    EXPECT_FALSE(app->commands().run("error.causes")) << "that op is right";
    const auto click = [&] {
      ASSERT_TRUE(app->commands().run("cursor.goto=0/0/sparse_attention"));
      user.show("error");
      user.settle();
      user.wait(4);
      user.look_at("error");
      user.ctx->ItemClick("**/###causes");
      user.settle();
      user.wait(4);
    };
    click();
    ASSERT_TRUE(app.bench().causes()) << user.screen();
    EXPECT_EQ(app.bench().causes()->place, app.bench().cursor());
    const std::vector<std::string> lines = app.bench().causes()->why.causes();
    ASSERT_FALSE(lines.empty());
    EXPECT_NE(lines[0].find("mutant:lse_in_base_2 gives the same output"), std::string::npos)
        << lines[0];
    const std::string screen = user.screen();
    for (const std::string& line : lines) {
      EXPECT_NE(screen.find(line), std::string::npos) << line << "\n" << screen;
    }
    EXPECT_EQ(screen.find("Which mistake gives this?"), std::string::npos);
    const std::string path =
        (std::filesystem::temp_directory_path() / fmt::format("causes-{}.acap", ::getpid()))
            .string();
    std::filesystem::remove_all(path);
    ASSERT_TRUE(app.bench().record(path, CaptureLevel::kFull));
    user.settle();
    ASSERT_TRUE(app.bench().open_capture(path));
    user.settle();
    EXPECT_FALSE(app.bench().causes()) << "those were of the session";
    click();
    EXPECT_FALSE(app.bench().causes());
    EXPECT_NE(user.screen().find("sinks was recorded without its values"), std::string::npos);
    std::filesystem::remove_all(path);
  });
}

}  // namespace driven_pattern_test
}  // namespace attnscope::gui
