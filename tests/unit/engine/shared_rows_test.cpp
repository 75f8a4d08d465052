// Layers that read the keys and values of an earlier layer: which one, what config.json says of it,
// and that such rows are there once in groups, blocks and weights.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/family/dense/dense.h"
#include "engine/family/models.h"
#include "engine/model/numbers.h"

namespace attnscope {
namespace shared_rows_test {

using Ints = std::vector<int>;

Ints readers_of(const ModelConfig& c) {
  Ints from;
  for (int i = 0; i < c.num_layers(); ++i) from.push_back(dense_shares_with(c, i));
  return from;
}

TEST(SharedRows, AreThoseOfTheLastLayerOfTheType) {
  EXPECT_EQ(readers_of(*preset("tiny-kvshare")), (Ints{-1, -1, -1, -1, 2, 3, 2}));
  EXPECT_EQ(readers_of(*preset("tiny-llama")), (Ints{-1, -1, -1, -1}));
  // By their places among the layers that run.
  EXPECT_EQ(readers_of(*preset("tiny-kvshare", {0, 2, 3, 6})), (Ints{-1, -1, -1, 1}));
}

TEST(SharedRows, AreReadFromConfigFiles) {
  ModelConfig c = *preset("tiny-kvshare");
  const nlohmann::json file = dense_write_config(c, false);
  EXPECT_EQ(file.at("num_kv_shared_layers"), 3);
  auto again = dense_read_config("config.json", file);
  ASSERT_TRUE(again) << again.error().text();
  EXPECT_EQ(again->dense.shared_layers, 3);
  EXPECT_FALSE(dense_write_config(*preset("tiny-llama"), false).contains("num_kv_shared_layers"));

  const auto refused = [](const ModelConfig& model, const std::string& what) {
    const auto ok = validate(model);
    ASSERT_FALSE(ok);
    EXPECT_NE(ok.error().text().find(what), std::string::npos) << ok.error().text();
  };
  c.dense.shared_layers = 7;
  refused(c, "num_kv_shared_layers: 7 is not supported; allowed: 0 to 6");
  c.dense.shared_layers = 6;  // layer 0 has a window, layer 1 none
  refused(c, "layer 1 one before it, of its type");
  refused(*preset("tiny-kvshare", {0, 1, 3, 4}), "4 without 2");
}

TEST(SharedRows, AreThereOnce) {
  const CacheLayout layout = build_cache_layout(*preset("tiny-kvshare"));
  ASSERT_EQ(layout.specs.size(), 8u) << "K and V of four layers";
  for (const auto& [reader, from] : std::vector<std::pair<int, int>>{{4, 2}, {5, 3}, {6, 2}}) {
    EXPECT_EQ(layout.owner(reader), from);
    EXPECT_EQ(layout.find(reader, kKeyCache), layout.find(from, kKeyCache));
    EXPECT_EQ(layout.find(reader, kValueCache), layout.find(from, kValueCache));
    EXPECT_EQ(token_rows(layout, reader), layout.find(from, kKeyCache));
  }
  EXPECT_EQ(layout.owner(3), 3);
  EXPECT_EQ(layout.sharers(2), (Ints{4, 6}));
  EXPECT_EQ(layout.sharers(0), Ints());
  // A block costs what it costs without the three layers.
  ModelConfig four = *preset("tiny-kvshare", {0, 1, 2, 3});
  const CacheLayout alone = build_cache_layout(four);
  EXPECT_EQ(layout.block_stride, alone.block_stride);
  EXPECT_EQ(layout.groups.size(), alone.groups.size());
  EXPECT_EQ(layout.demand(100, 32), alone.demand(100, 32));
  // All seven layers with rows of their own need more of each block.
  ModelConfig own = *preset("tiny-kvshare");
  own.dense.shared_layers = 0;
  EXPECT_EQ(build_cache_layout(own).specs.size(), 14u);
}

TEST(SharedRows, LayersWithoutRowsProjectNoKeys) {
  const auto graph = model_graph(*preset("tiny-kvshare"));
  const std::vector<as_op_id> reads = {AS_OP_ATTN_NORM,       AS_OP_Q_PROJ, AS_OP_ROPE_KV_INSERT,
                                       AS_OP_PAGED_ATTENTION, AS_OP_O_PROJ, AS_OP_RESIDUAL};
  EXPECT_EQ(graph->layer(4).ops(), reads);
  const Node& insert = *graph->layer(4).find(AS_OP_ROPE_KV_INSERT);
  for (const char* tap : {"k", "v", "k_weight", "slots", "k_row", "k_cache", "v_cache"}) {
    EXPECT_EQ(insert.find(tap), nullptr) << tap;
    if (std::string(tap) != "k_weight") {
      EXPECT_NE(graph->layer(3).find(AS_OP_ROPE_KV_INSERT)->find(tap), nullptr) << tap;
    }
  }
  const ModelWeights weights = dense_weights(*preset("tiny-kvshare"));
  for (const WeightSpec& w : weights.layers[5]) {
    EXPECT_NE(w.name, "k_proj");
    EXPECT_NE(w.name, "v_proj");
    EXPECT_NE(w.name, "k_norm");
  }
}

}  // namespace shared_rows_test
}  // namespace attnscope
