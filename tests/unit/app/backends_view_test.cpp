// What the panel Backends says of a model's layers, and what may be asked besides.
#include "app/views/backends_view.h"

#include <gtest/gtest.h>

#include "engine/family/models.h"

namespace attnscope {
namespace backends_view_test {

class BackendsViews : public testing::Test {
 protected:
  // Of options as "gpu=sm_100".
  ModelBackends of(const char* model, std::initializer_list<const char*> options = {},
                   int layer = -1) const {
    BackendsAsk ask;
    for (const std::string_view option : options) {
      const std::size_t equal = option.find('=');
      const auto ok = set_option(ask, option.substr(0, equal), option.substr(equal + 1));
      EXPECT_TRUE(ok) << option;
    }
    auto found = model_backends(registry_, *preset(model), ask, layer);
    EXPECT_TRUE(found) << (found ? "" : found.error().text());
    return found ? std::move(*found) : ModelBackends();
  }
  static std::string error(std::string_view option, std::string_view value) {
    BackendsAsk ask;
    const auto ok = set_option(ask, option, value);
    return ok ? "taken" : ok.error().text();
  }

  const AttentionRegistry registry_;
};

TEST_F(BackendsViews, OfLayersThatDifferIsOfThoseUnderTheCursor) {
  const ModelBackends first = of("tiny-gemma", {}, 3);
  ASSERT_EQ(first.layers.size(), 2u);
  EXPECT_EQ(first.shown, 0u);
  EXPECT_EQ(first.layers[0].name, "window 32");
  EXPECT_EQ(first.layers[0].layers, "layers 0-4");
  EXPECT_EQ(first.layers[1].layers, "layer 5");
  EXPECT_EQ(first.layers[0].taken, "FLASH_ATTN (FA3)");
  EXPECT_EQ(first.view.sentence,
            "Layers 0-4 (window 32) on sm_90: FLASH_ATTN (FA3), number 1 of 5 that are "
            "tried; 4 of them accepted. All other layers get the same.");
  EXPECT_NE(first.view.asked.find("window 32 in 5 of 5 layers"), std::string::npos);
  EXPECT_EQ(
      first.computed,
      "scores times 0.125, keys and values of its own; here by rope_kv_insert, paged_attention");
  const ModelBackends last = of("tiny-gemma", {}, 5);
  EXPECT_EQ(last.shown, 1u);
  EXPECT_EQ(last.view.asked.find("window"), std::string::npos);
  EXPECT_EQ(of("tiny-mqa").layers[0].layers, "layers 0, 2");
  EXPECT_NE(of("tiny-llama4").computed.find("within chunks of 32 tokens"), std::string::npos);
}

TEST_F(BackendsViews, OfEqualLayersNamesTheModelAlone) {
  const ModelBackends all = of("tiny-llama");
  ASSERT_EQ(all.layers.size(), 1u);
  EXPECT_EQ(all.view.sentence,
            "tiny-llama on sm_90: FLASH_ATTN (FA3), number 1 of 5 that are tried; 3 of them "
            "accepted.");
  EXPECT_EQ(of("v4-flash").layers[0].name, "sparse MLA");
}

TEST_F(BackendsViews, FollowWhatIsAsked) {
  const auto taken = [&](const char* model, std::initializer_list<const char*> options) {
    return of(model, options).layers[0].taken;
  };
  EXPECT_EQ(taken("tiny-gemma", {"gpu=sm_100"}), "FLASHINFER (TRTLLM)");
  EXPECT_EQ(taken("tiny-gemma", {"dtype=float32"}), "TRITON_ATTN");
  EXPECT_EQ(taken("tiny-gemma", {"dtype=float32", "dtype=model"}), "FLASH_ATTN (FA3)");
  EXPECT_EQ(taken("tiny-gemma", {"cache-dtype=turboquant_k8v4"}), "TURBOQUANT");
  EXPECT_EQ(taken("tiny-gemma", {"backend=triton_attn"}), "TRITON_ATTN");
  EXPECT_EQ(taken("tiny-gemma", {"backend=CPU_ATTN"}), "");
  EXPECT_EQ(taken("tiny-gemma", {"backend=CPU_ATTN", "backend="}), "FLASH_ATTN (FA3)");
  EXPECT_EQ(taken("tiny-gemma", {"with=mm_prefix+non_causal"}), "FLEX_ATTENTION");
  EXPECT_EQ(taken("tiny-gemma", {"gpu=cpu"}), "CPU_ATTN");
  EXPECT_EQ(taken("tiny-gemma", {"gpu=cpu", "gpu="}), "FLASH_ATTN (FA3)");
  EXPECT_EQ(taken("tiny-gemma", {"gpu=sm_100", "type=encoder"}), "FLASH_ATTN (FA4)");
  EXPECT_NE(of("tiny-gemma", {"block-size=24"}).view.given.find("blocks of 24 tokens"),
            std::string::npos);
}

TEST_F(BackendsViews, RefuseWhatThereIsNot) {
  EXPECT_EQ(error("gpus", "sm_90"),
            "option \"gpus\" is not known; did you mean gpu? allowed: gpu, dtype, cache-dtype, "
            "block-size, type, with, backend");
  EXPECT_NE(error("with", "sinks,alibis").find("feature \"alibis\" is not known"),
            std::string::npos);
  EXPECT_NE(error("type", "decoders").find("did you mean decoder"), std::string::npos);
  for (const char* wrong : {"0", "-1", "16k", "1048577", "99999999999999999999"}) {
    EXPECT_NE(error("block-size", wrong).find("is no number of tokens"), std::string::npos)
        << wrong;
  }
  EXPECT_EQ(error("with", ""), "taken");
  BackendsAsk ask;
  ask.gpu = "h100";
  const auto platform = model_backends(registry_, *preset("tiny-llama"), ask, -1);
  ASSERT_FALSE(platform);
  EXPECT_EQ(platform.error().message, "GPU \"h100\" is not known");
  ask = {};
  ask.cache_dtype = "fp9";
  EXPECT_FALSE(model_backends(registry_, *preset("tiny-llama"), ask, -1));
}

}  // namespace backends_view_test
}  // namespace attnscope
