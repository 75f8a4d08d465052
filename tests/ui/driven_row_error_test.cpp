// The Row errors panel in the app: what it says is the view's, a click on a cell selects the token
// and the head, and a layer's place outside of layers says so.
#include <set>

#include "app/views/row_error_view.h"
#include "engine/family/models.h"
#include "tests/ui/driven_app.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope::gui {
namespace driven_row_error_test {

TEST(DrivenRowError, ACellSelectsTokenAndHead) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    RunSetup setup;
    setup.scenario = small_scenario(90, 4);
    setup.scenario.model = *preset("tiny-llama");
    setup.scenario.model.dense.cache_record = AS_RECORD_FP8_TOKEN_HEAD;
    setup.references = References::kNone;
    app.bench().open(std::move(setup), false);
    user.settle();
    ASSERT_TRUE(app->commands().run("step.forward"));
    user.settle();
    ASSERT_TRUE(app->commands().run("layout.step"));
    ASSERT_TRUE(app->commands().run("cursor.goto=0/1/rope_kv_insert"));
    user.settle();
    user.show("row_error");
    user.wait(4);
    const RowErrorView view = row_error_view(*app.bench().snapshot()->info, *app.bench().step(), 1);
    ASSERT_EQ(view.caches.size(), 2u) << "keys and values";
    ASSERT_GT(view.largest, 0.01) << "3 bits of mantissa";
    EXPECT_LT(view.largest, 0.1);
    EXPECT_NE(user.screen().find(view.sentence.substr(0, 40)), std::string::npos) << user.screen();
    std::set<std::int64_t> positions;
    for (const float x : {0.1f, 0.5f, 0.9f}) {
      user.click("##errors1", x, 0.9f);
      const Selection now = app.selection();
      EXPECT_EQ(now.head, view.caches[1].heads - 1);
      EXPECT_EQ(now.tap, "v_cache");
      positions.insert(now.position);
    }
    EXPECT_EQ(positions.size(), 3u);
    ASSERT_TRUE(app->commands().run("cursor.goto=0/-/slot_mapping"));
    user.settle();
    user.wait(4);
    EXPECT_NE(user.screen().find("the cursor is outside of them"), std::string::npos)
        << user.screen();
  });
}

}  // namespace driven_row_error_test
}  // namespace attnscope::gui
