// Layers as backends are given them: which of a model ask the same, and what of each is asked.
#include "engine/backend/attention_layer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/backend/attention_request.h"
#include "engine/backend/attention_selector.h"
#include "engine/family/models.h"

namespace attnscope {
namespace attention_layer_test {

using Numbers = std::vector<int>;

TEST(AttentionLayers, OfWindowsAndAllTokens) {
  const ModelConfig config = *preset("tiny-gemma");
  const auto groups = attention_layers(config);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].layers, (Numbers{0, 1, 2, 3, 4}));
  EXPECT_EQ(groups[1].layers, Numbers{5});
  EXPECT_EQ(groups[0].layer.window, 32);
  EXPECT_EQ(groups[1].layer.window, 0);
  EXPECT_EQ(describe(groups[0].layer), "window 32");
  EXPECT_EQ(describe(groups[1].layer), "full");
  EXPECT_DOUBLE_EQ(groups[0].layer.scale, 0.125);
  const AttentionRequest windowed = layer_request(attention_request(config), groups[0]);
  EXPECT_EQ(windowed.window, 32);
  EXPECT_EQ(windowed.windowed, 5);
  EXPECT_EQ(windowed.layers, 5);
  const AttentionRequest full = layer_request(attention_request(config), groups[1]);
  EXPECT_EQ(full.window, 0);
  EXPECT_EQ(full.windowed, 0);
  EXPECT_EQ(full.model, "tiny-gemma");
}

TEST(AttentionLayers, OfChunks) {
  const auto groups = attention_layers(*preset("tiny-llama4"));
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].layers, (Numbers{0, 1, 2}));
  EXPECT_EQ(describe(groups[0].layer), "chunks of 32");
  EXPECT_EQ(groups[1].layers, Numbers{3});
}

TEST(AttentionLayers, WithSinksAndASoftCap) {
  const auto groups = attention_layers(*preset("tiny-mqa"));
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].layers, (Numbers{0, 2}));
  EXPECT_EQ(groups[0].layer.window, 24);
  for (const AttentionLayerGroup& group : groups) {
    EXPECT_TRUE(group.layer.sinks);
    EXPECT_EQ(group.layer.soft_cap, 20);
  }
}

// 512 latent dims and 64 with RoPE: rows of 576, of which 512 are the values.
TEST(AttentionLayers, OfLatentRowsCountTheirDimsWithRope) {
  for (const auto& [name, sparse] : {std::pair{"tiny-v3", false}, std::pair{"tiny-v3.2", true}}) {
    const ModelConfig config = *preset(name);
    const auto groups = attention_layers(config);
    ASSERT_EQ(groups.size(), 1u) << name;
    const AttentionLayer& layer = groups[0].layer;
    EXPECT_EQ(layer.head_size, 576);
    EXPECT_EQ(layer.value_size, 512);
    EXPECT_EQ(layer.kv_heads, 1);
    EXPECT_EQ(layer.sparse, sparse);
    EXPECT_EQ(describe(layer), sparse ? "sparse MLA" : "MLA");
    // 32 dims without RoPE and 64 with; YaRN's 0.1 ln 40 + 1, squared.
    const double yarn = 0.1 * std::log(40.0) + 1;
    EXPECT_NEAR(layer.scale, yarn * yarn / std::sqrt(96.0), 1e-12);
  }
}

TEST(AttentionLayers, OnlyThoseThatRun) {
  ModelConfig config = *preset("tiny-gemma");
  config.layers = {1, 3, 5};
  const auto groups = attention_layers(config);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].layers, (Numbers{1, 3}));
  EXPECT_EQ(groups[1].layers, Numbers{5});
}

// Heads are of the model: a rank has a share of them, and the backend is chosen before.
TEST(AttentionLayers, OfARankAreThoseOfTheModel) {
  ModelConfig config = *preset("tiny-llama");
  const AttentionLayer whole = attention_layer(config, 0);
  config.heads /= 2;
  config.parallel.size = 2;
  EXPECT_EQ(attention_layer(config, 0).heads, whole.heads);
}

// What no file says and what no rule looks at.
TEST(AttentionLayers, AskForWhatTheyHave) {
  AttentionLayerGroup group{attention_layer(*preset("tiny-llama"), 0), {0, 1, 2, 3}};
  const AttentionRequest base = attention_request(*preset("tiny-llama"));
  EXPECT_FALSE(layer_request(base, group).alibi);
  group.layer.alibi_slopes = {0.5f, 0.25f};
  group.layer.kv_of = 2;
  const AttentionRequest asked = layer_request(base, group);
  EXPECT_TRUE(asked.alibi);
  EXPECT_EQ(describe(group.layer), "full, keys and values of layer 2");
  const AttentionRegistry backends;
  const auto selection = explain_backends(backends, asked);
  ASSERT_TRUE(selection);
  EXPECT_EQ(selection->verdicts[static_cast<std::size_t>(selection->chosen)].variant, "FA2");
  group.layer.kind = AttentionLayerKind::kMamba2;
  EXPECT_EQ(layer_request(base, group).kind, AttentionLayerKind::kMamba2);
}

}  // namespace attention_layer_test
}  // namespace attnscope
