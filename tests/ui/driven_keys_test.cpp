// The Index keys panel in the app: both plots of a layer that selects, and the way on where a layer
// has no index keys.
#include "app/views/key_energy_view.h"
#include "engine/family/models.h"
#include "tests/ui/driven_app.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope::gui {
namespace driven_keys_test {

void open_model(DrivenApp& app, User& user, const char* model) {
  RunSetup setup;
  setup.scenario = small_scenario(90, 4);
  setup.scenario.model = *preset(model);
  setup.references = References::kNone;
  app.bench().open(std::move(setup), false);
  user.settle();
  ASSERT_TRUE(app->commands().run("step.forward"));
  user.settle();
  user.show("index_keys");
  user.wait(4);
}

TEST(DrivenKeys, ALayerThatSelectsShowsBothForms) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    open_model(app, user, "tiny-v3.2");
    ASSERT_TRUE(app->commands().run("cursor.goto=0/1/index_key_insert"));
    user.settle();
    user.wait(4);
    const Snapshot& snapshot = *app.bench().snapshot();
    const KeyEnergyView view = key_energy_view(*snapshot.info, *app.bench().step(), 1);
    ASSERT_EQ(view.why_empty, "");
    EXPECT_GT(view.keys, 0);
    const std::string screen = user.screen();
    EXPECT_NE(screen.find(view.sentence), std::string::npos) << screen;
    EXPECT_NE(screen.find("energy / mean, before the transform"), std::string::npos);
    EXPECT_NE(screen.find("energy / mean, after the transform"), std::string::npos);
  });
}

TEST(DrivenKeys, ALayerThatAttendsToAllSaysSo) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    open_model(app, user, "tiny-v3");
    ASSERT_TRUE(app->commands().run("cursor.goto=0/1/mla_attention"));
    user.settle();
    user.wait(4);
    const std::string screen = user.screen();
    EXPECT_NE(screen.find("Layer 1 is MLA: it selects nothing"), std::string::npos) << screen;
  });
}

}  // namespace driven_keys_test
}  // namespace attnscope::gui
