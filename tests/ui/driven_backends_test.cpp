// The panel Backends: the tree follows the model, its layers and what its controls ask.
#include "app/views/backends_view.h"
#include "engine/family/models.h"
#include "tests/ui/driven_app.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope::gui {
namespace driven_backends_test {

// On a screen that is so tall that nothing of the panel is out of sight.
void open_backends(DrivenApp& app, User& user, const char* model) {
  ImGui::GetIO().DisplaySize = ImVec2(1600, 2600);
  user.wait(4);
  RunSetup setup;
  setup.scenario = small_scenario(20, 2);
  setup.scenario.model = *preset(model);
  setup.references = References::kNone;
  app.bench().open(std::move(setup), true);
  user.settle();
  ASSERT_TRUE(app->commands().run("layout.step"));
  user.show("backends");
  user.wait(4);
  user.look_at("backends");
  user.wait(4);
}

bool shows(User& user, const std::string& text) {
  user.wait(3);
  return user.screen().find(text) != std::string::npos;
}

TEST(DrivenBackends, ShowTheTreeOfTheLayersUnderTheCursor) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    open_backends(app, user, "tiny-gemma");
    ASSERT_TRUE(app->commands().run("cursor.goto=1/2/paged_attention"));
    user.settle();
    EXPECT_TRUE(shows(user, "Layers 0-4 (window 32) on sm_90: FLASH_ATTN (FA3)")) << user.screen();
    for (const char* text :
         {"TRITON_ATTN", "would do", "lanes cpu and cuda compute it",
          "others, tried only where they are named", "Asked: 4 heads, 2 KV heads with size 64",
          "Given: blocks of 16 tokens", "Computed: scores times 0.125"}) {
      EXPECT_TRUE(shows(user, text)) << text << "\n" << user.screen();
    }
    // Those of the other kind of layers, whose first one the cursor goes to.
    user.ctx->ItemClick("**/full: layer 5");
    user.settle();
    EXPECT_EQ(app.bench().cursor().layer, 5);
    EXPECT_TRUE(shows(user, "Layer 5 (full) on sm_90"));
  });
}

TEST(DrivenBackends, ControlsAskAndALineNames) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    open_backends(app, user, "tiny-llama");
    EXPECT_TRUE(shows(user, "head size: asked 32, allowed 64, 128, 256"));
    user.ctx->ComboClick("##gpu/sm_80");
    EXPECT_TRUE(shows(user, "tiny-llama on sm_80: FLASH_ATTN (FA2)"));
    user.ctx->ComboClick("##dtype/float32");
    EXPECT_TRUE(shows(user, "on sm_80: TRITON_ATTN, number 3")) << user.screen();
    user.ctx->ComboClick("##dtype/model");
    user.ctx->ItemCheck("**/sinks");
    EXPECT_TRUE(shows(user, "sinks: asked sinks, allowed no sinks")) << user.screen();
    user.ctx->ItemUncheck("**/sinks");
    EXPECT_TRUE(shows(user, "FLASH_ATTN (FA2), number 1"));
    user.ctx->ComboClick("##block-size/8");
    EXPECT_TRUE(shows(user, "block size: asked 8")) << user.screen();
    user.ctx->ComboClick("##block-size/model");
    // A click on a line names it, a second one takes the name back.
    user.ctx->ItemClick("##backend TRITON_ATTN");
    EXPECT_TRUE(shows(user, "tiny-llama on sm_80: TRITON_ATTN, as named."));
    user.ctx->ItemClick("##backend TRITON_ATTN");
    EXPECT_TRUE(shows(user, "FLASH_ATTN (FA2), number 1"));
    // Those that are not tried, and one of them by its name.
    user.ctx->ItemClick("###others");
    EXPECT_TRUE(shows(user, "platform: asked cuda, allowed rocm"));
    EXPECT_TRUE(shows(user, "layer kind: asked attention, allowed mamba2"));
    user.ctx->ItemClick("##backend CPU_ATTN");
    EXPECT_TRUE(shows(user, "tiny-llama on sm_80: CPU_ATTN was named and is refused."));
    user.ctx->ItemClick("**/As the model says##backends.reset");
    EXPECT_TRUE(shows(user, "tiny-llama on sm_90: FLASH_ATTN (FA3)"));
  });
}

// What no backend could have is refused, and what was asked before stays.
TEST(DrivenBackends, KeepWhatWasAskedWhereTheNextIsRefused) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    open_backends(app, user, "tiny-llama");
    ASSERT_TRUE(app->commands().run("backends.ask=gpu=rocm"));
    EXPECT_TRUE(shows(user, "tiny-llama on rocm: ROCM_ATTN"));
    for (const char* wrong : {"gpu=h100", "cache-dtype=fp9", "backend=FLASH", "with=sink", "x=1"}) {
      EXPECT_FALSE(app->commands().run(std::string("backends.ask=") + wrong)) << wrong;
    }
    EXPECT_TRUE(shows(user, "tiny-llama on rocm: ROCM_ATTN"));
  });
}

// One model by every backend: a click runs it, the table says what each was given and gave.
TEST(DrivenBackends, RunTheModelByEach) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    open_backends(app, user, "tiny-mha");
    user.ctx->ItemClick("**/Run the model by each backend##backends.compare");
    const std::string due = "tiny-mha: one model, 5 backends that take it; all are right.";
    for (int i = 0; i < 4000 && user.screen().find(due) == std::string::npos; ++i) user.wait(1);
    for (const std::string& text :
         {due, std::string("kv_idx <= q_idx"), std::string("indptr, indices, last page"),
          std::string("HND"), std::string("refused: cache dtype")}) {
      EXPECT_TRUE(shows(user, text)) << text << "\n" << user.screen();
    }
  });
}

}  // namespace driven_backends_test
}  // namespace attnscope::gui
