// The Row pool panel: how to have pools where there are none, a place that selects the token of its
// row, and what it says of hits and misses.
#include <algorithm>

#include "app/views/row_pool_view.h"
#include "tests/ui/driven_app.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope::gui {
namespace driven_row_pool_test {

void open_pools(DrivenApp& app, User& user, double ratio) {
  RunSetup setup;
  setup.scenario = small_scenario(120, 6);
  setup.scenario.model.index_topk = 8;
  setup.scenario.ess.ratio = ratio;
  setup.scenario.model.host_rows = ratio > 0;
  setup.references = References::kNone;
  app.bench().open(std::move(setup), false);
  user.settle();
  app.bench().run_until("to the end", [](const Session&) { return false; });
  user.settle();
  ASSERT_TRUE(app->commands().run("layout.step"));
  ASSERT_TRUE(app->commands().run("cursor.goto=4/1/sparse_attention"));
  user.settle();
  user.show("row_pool");
  user.wait(4);
}

TEST(DrivenRowPool, WithoutPoolsSaysHowToHaveThem) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    open_pools(app, user, 0);
    const std::string screen = user.screen();
    EXPECT_NE(screen.find("\"ess\": {\"ratio\": 0.2}"), std::string::npos) << screen;
  });
}

TEST(DrivenRowPool, APlaceSelectsTheTokenOfItsRow) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    open_pools(app, user, 0.9);
    const auto snapshot = app.bench().shared_snapshot();
    const StepTrace& step = *app.bench().step();
    const RowPoolView view = row_pool_view(*snapshot->info, step, snapshot->trace(step.step - 1),
                                           snapshot->summary(step.step), 1);
    ASSERT_EQ(view.why_empty, "");
    EXPECT_NE(user.screen().find(view.sentence), std::string::npos) << view.sentence;
    ASSERT_FALSE(view.places.empty());
    EXPECT_EQ(view.layers.size(), 2u);

    user.look_at("row_pool");
    const Selection before = app.selection();
    user.click("##rows", 0.02f, 0.05f);  // place 0
    user.wait(4);
    const PoolPlace& first = view.places.front();
    ASSERT_GE(first.row, 0);
    EXPECT_NE(app.selection(), before);
    EXPECT_EQ(app.selection().request, first.request);
    EXPECT_EQ(app.selection().position / view.tokens_per_row, first.row);
  });
}

// In a plot of the least size they would lie over the curves.
TEST(DrivenRowPool, NamesOfSweptCurvesStandBelowTheirPlots) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    ASSERT_TRUE(app->commands().run("layout.step"));
    ASSERT_TRUE(
        app->commands().run("row_sweep.generate=overlap=0.5+batch=2+context=600+top-k=64+steps=4"));
    user.show("row_sweep");
    user.wait_for("row_sweep");
    user.wait(4);
    // Texts, where ImPlot's own legend would be a picture.
    const std::string screen = user.screen();
    for (const char* name : {"all layers", "layer 0", "layer 3"}) {
      EXPECT_NE(screen.find(name), std::string::npos) << name << "\n" << screen;
    }
  });
}

}  // namespace driven_row_pool_test
}  // namespace attnscope::gui
