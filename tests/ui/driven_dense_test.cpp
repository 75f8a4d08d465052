// Panels over models of dense attention: what they say of keys and values, of the heads that share
// them, and of layers with a window.

#include <string>

#include "engine/family/models.h"
#include "tests/ui/driven_app.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope::gui {
namespace driven_dense_test {

// A small session of the model, run to its end, with the panel of an op's place in front.
void show_dense(DrivenApp& app, User& user, const char* model, const char* go, const char* panel) {
  RunSetup setup;
  setup.scenario = small_scenario(90, 4);
  setup.scenario.model = *preset(model);
  setup.references = References::kSim;
  app.bench().open(std::move(setup), false);
  user.settle();
  app.bench().run_until("to the end", [](const Session&) { return false; });
  user.settle();
  ASSERT_TRUE(app->commands().run("layout.step"));
  ASSERT_TRUE(app->commands().run(go)) << go;
  user.settle();
  user.show(panel);
  user.wait(4);
}

void expect_on_screen(User& user, const std::string& text) {
  EXPECT_NE(user.screen().find(text), std::string::npos) << text << "\n" << user.screen();
}

TEST(DrivenDense, BytesShowTheRowOfKeys) {
  DrivenApp app;
  app.drive([&](User& user) {
    show_dense(app, user, "tiny-llama", "cursor.goto=1/1/rope_kv_insert", "bytes");
    expect_on_screen(user, "bf16 ro");
    expect_on_screen(user, "ref.sim the same");
  });
}

TEST(DrivenDense, BlockTablesHaveAGroupForEachKindOfLayer) {
  DrivenApp app;
  app.drive([&](User& user) {
    show_dense(app, user, "tiny-gemma", "cursor.goto=1/1/paged_attention", "block_tables");
    expect_on_screen(user, "windowed ones");
    expect_on_screen(user, "sliding-a");
  });
}

TEST(DrivenDense, TensorSaysWhichHeadsShareKeysAndValues) {
  DrivenApp app;
  app.drive([&](User& user) {
    show_dense(app, user, "tiny-gemma", "cursor.goto=1/1/paged_attention", "tensor");
    expect_on_screen(user, "reads KV head");
  });
}

TEST(DrivenDense, WindowShowsTheTokensOfASlidingLayerAndAllOfAFullOne) {
  DrivenApp app;
  app.drive([&](User& user) {
    show_dense(app, user, "tiny-gemma", "cursor.goto=1/1/paged_attention", "window");
    expect_on_screen(user, "Window of token");
    ASSERT_TRUE(app->commands().run("cursor.goto=1/5/paged_attention"));
    user.settle();
    user.wait(4);
    expect_on_screen(user, "All before token");
  });
}

}  // namespace driven_dense_test
}  // namespace attnscope::gui
