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

// Words and tabs are those of what a layer has: no window, entries, selection or sinks in a full
// one.
TEST(DrivenDense, AFullLayerIsSpokenOfWithoutWindowEntriesAndSinks) {
  DrivenApp app;
  app.drive([&](User& user) {
    show_dense(app, user, "tiny-llama", "cursor.goto=1/1/paged_attention", "why");
    const auto without = [&](const char* text) {
      EXPECT_EQ(user.screen().find(text), std::string::npos) << text << "\n" << user.screen();
    };
    expect_on_screen(user, " rows with 100 % of the weight");
    expect_on_screen(user, "writes of the slot");
    for (const char* other : {"window rows", "the sink took", "not selected", "pooled tokens",
                              "score terms", "position / entry"}) {
      without(other);
    }
    const auto refused = app->commands().run("why.part=score");
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().text().find("layer 1 has no score terms"), std::string::npos);

    user.show("sink");
    user.wait(4);
    expect_on_screen(user, "No head of layer 1 has a sink");
    for (const char* other : {"window", "compressed", "sink logit", "decay"}) {
      EXPECT_FALSE(user.ctx->ItemExists((user.window("sink") + "/**/" + other).c_str())) << other;
    }
    user.show("selection");
    user.wait(4);
    expect_on_screen(user, "attended");
  });
}

TEST(DrivenDense, WhereNothingSelectsTopKShowsTheWeightOfEachToken) {
  DrivenApp app;
  app.drive([&](User& user) {
    show_dense(app, user, "tiny-llama", "cursor.goto=1/1/paged_attention", "top_k");
    expect_on_screen(user, "No layer selects: head 0 of layer 1 attends all ");
    user.look_at("top_k");
    const Selection before = app.selection();
    user.click("**/##cells", 0.3f, 0.9f);
    user.wait(2);
    EXPECT_NE(app.selection().position, before.position);
    EXPECT_GT(app.selection().head, 0);
    EXPECT_GT(app.selection().block, 0);
  });
}

TEST(DrivenDense, WindowShowsTheChunkOfAChunkedLayer) {
  DrivenApp app;
  app.drive([&](User& user) {
    show_dense(app, user, "tiny-llama4", "cursor.goto=1/1/paged_attention", "window");
    expect_on_screen(user, "Chunk ");
    expect_on_screen(user, "of its 32 rows");
    expect_on_screen(user, "Chunks do not add up.");
    user.show("block_tables");
    user.wait(4);
    expect_on_screen(user, "chunked ones");
    expect_on_screen(user, "left with chunks that ended");
  });
}

// Whatever looks for groups, blocks or rows of a cache finds none and says so; nothing falls over.
TEST(DrivenDense, EveryPanelDrawsAModelWithoutCaches) {
  DrivenApp app;
  app.drive([&](User& user) {
    RunSetup setup;
    setup.scenario = small_scenario(60, 1);
    setup.scenario.model = *preset("tiny-bert");
    setup.references = References::kSim;
    app.bench().open(std::move(setup), false);
    user.settle();
    app.bench().run_until("to the end", [](const Session&) { return false; });
    user.settle();
    for (const char* layout : {"layout.step", "layout.cache", "layout.selection", "layout.error"}) {
      ASSERT_TRUE(app->commands().run(layout));
      ASSERT_TRUE(app->commands().run("cursor.goto=0/1/varlen_attention"));
      user.settle();
      user.wait(4);
    }
    for (const auto& [panel, text] : {std::pair{"window", "of its request, "},
                                      {"top_k", "attends all 60 rows"},
                                      {"block_tables", "The model has no caches"},
                                      {"bytes", "no op writes rows"},
                                      {"why", "The model has no caches"}}) {
      user.show(panel);
      user.wait(4);
      expect_on_screen(user, text);
    }
    for (const char* panel :
         {"cache", "pool", "compare", "sink", "plan", "events", "time", "coverage", "index_keys"}) {
      user.show(panel);
      user.wait(2);
    }
  });
}

TEST(DrivenDense, WindowShowsHowFarSlidingLayersReach) {
  DrivenApp app;
  app.drive([&](User& user) {
    show_dense(app, user, "tiny-gemma", "cursor.goto=1/1/paged_attention", "window");
    expect_on_screen(user, "2 x (32 - 1) + 1");
  });
}

}  // namespace driven_dense_test
}  // namespace attnscope::gui
