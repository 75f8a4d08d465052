// The Error panel on a wrong op: what its wrong elements have in common stands below the worst one.
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

}  // namespace driven_pattern_test
}  // namespace attnscope::gui
