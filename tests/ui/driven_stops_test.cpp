// Stops are typed, kept with the scenario, and run to.
#include <fmt/format.h>

#include "tests/ui/driven_app.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope::gui {
namespace driven_stops_test {

void open(DrivenApp& app, User& user, const std::string& lane) {
  RunSetup setup;
  setup.scenario = small_scenario(90, 4);
  setup.scenario.stops = {{"wrong of sparse_attention", true}, {"nan", false}, {"wrnog", true}};
  setup.references = References::kSim;
  setup.lanes = {"cpu", lane};
  app.bench().open(std::move(setup), false);
  user.settle();
}

TEST(DrivenStops, ARunEndsWhereOneHolds) {
  DrivenApp app(References::kSim);
  app.drive([&](User& user) {
    open(app, user, "sparse_attention=mutant:lse_in_base_2");
    ASSERT_EQ(app.bench().stops().size(), 2u);
    EXPECT_TRUE(app.said("did you mean wrong?")) << "of what the scenario had";
    ASSERT_TRUE(app->commands().run("run.to_stop"));
    user.settle();
    user.wait(4);
    EXPECT_EQ(app.bench().cursor().step, 0);
    EXPECT_EQ(app.bench().cursor().op, AS_OP_SPARSE_ATTENTION);
    EXPECT_FALSE(app.bench().snapshot()->finished);
    EXPECT_TRUE(app.said("sparse_attention.lse of layer 0 is wrong"));
    user.show("events");
    ASSERT_TRUE(app->commands().run("events.show=stops"));
    user.settle();
    user.wait(4);
    const std::string screen = user.screen();
    EXPECT_NE(screen.find("1 of 2 stops is on"), std::string::npos) << screen;
    EXPECT_NE(screen.find("holds here"), std::string::npos) << screen;
  });
}

TEST(DrivenStops, ASoundRunGoesToItsEnd) {
  DrivenApp app(References::kSim);
  app.drive([&](User& user) {
    open(app, user, "sparse_attention=cpu");
    ASSERT_TRUE(app->commands().run("run.to_stop"));
    user.settle();
    EXPECT_TRUE(app.bench().snapshot()->finished);
    EXPECT_TRUE(app.said("No stop held of any step since."));
  });
}

}  // namespace driven_stops_test
}  // namespace attnscope::gui
