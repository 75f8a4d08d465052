// Models of absorbed MLA: their config.json in both directions, rules, caches, graph and names.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/family/mla/mla.h"
#include "engine/family/model_weights.h"
#include "engine/family/models.h"
#include "engine/family/rank_split.h"
#include "kernels/layout/mla_rows.h"
#include "kernels/params/mla_params.h"
#include "tests/unit/engine/config_fixture.h"

namespace attnscope {
namespace mla_family_test {

using nlohmann::json;

class MlaFamily : public ConfigTest {};

// The keys of the published file that say how attention is computed.
json v3_2() {
  return json::parse(R"({
    "architectures": ["DeepseekV32ForCausalLM"], "attention_bias": false, "ep_size": 1,
    "hidden_size": 7168, "index_head_dim": 128, "index_n_heads": 64, "index_topk": 2048,
    "kv_lora_rank": 512, "max_position_embeddings": 163840, "model_type": "deepseek_v32",
    "n_routed_experts": 256, "num_attention_heads": 128, "num_hidden_layers": 61,
    "num_key_value_heads": 128, "num_nextn_predict_layers": 1, "q_lora_rank": 1536,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                            "scale_fmt": "ue8m0", "weight_block_size": [128, 128]},
    "rms_norm_eps": 1e-06, "rope_theta": 10000, "tie_word_embeddings": false,
    "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0,
                     "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096,
                     "type": "yarn"}})");
}

TEST_F(MlaFamily, WhatIsWrittenIsReadAgain) {
  for (const char* name : {"tiny-v3", "tiny-v3.2", "v3.2"}) {
    SCOPED_TRACE(name);
    const ModelConfig c = *preset(name);
    EXPECT_TRUE(validate(c));
    const ModelConfig again = must(json(mla_write_config(c, false)));
    EXPECT_EQ(again.family, "mla");
    EXPECT_EQ(mla_write_config(again, false), mla_write_config(c, false));
    EXPECT_EQ(again.mla.indexer, c.mla.indexer);
    EXPECT_EQ(again.mla.latent_record, c.mla.latent_record);
    if (c.mla.indexer) {
      EXPECT_EQ(again.mla.index_scale, c.mla.index_scale);
    }
    EXPECT_EQ(mla_scale(again), mla_scale(c));
  }
}

TEST_F(MlaFamily, ReadsThePublishedFile) {
  const ModelConfig c = must(v3_2());
  const ModelConfig own = *preset("v3.2");
  EXPECT_EQ(mla_write_config(c, false), mla_write_config(own, false));
  EXPECT_EQ(c.mla.latent_scale, AS_SCALE_FLOAT);
  EXPECT_EQ(c.mla.index_scale, AS_SCALE_POWER_OF_TWO);
  // 192^-0.5 (0.1 ln 40 + 1)^2
  EXPECT_NEAR(mla_scale(c), 0.1352337788608801, 1e-12);
  json plain = v3_2();
  plain["quantization_config"]["scale_fmt"] = nullptr;
  EXPECT_EQ(must(plain).mla.index_scale, AS_SCALE_FLOAT);
  plain["rope_scaling"] = nullptr;
  EXPECT_NEAR(mla_scale(must(plain)), 1 / std::sqrt(192.0), 1e-15);
  json v3 = v3_2();
  v3["architectures"] = {"DeepseekV3ForCausalLM"};
  v3["model_type"] = "deepseek_v3";
  EXPECT_FALSE(must(v3).mla.indexer);
}

// No published file has such layers.
TEST_F(MlaFamily, SomeLayersMayHaveNoIndexer) {
  json file = v3_2();
  file["num_hidden_layers"] = 5;
  file["attnscope_indexer_layers"] = {1, 4};
  const ModelConfig c = must(file);
  EXPECT_EQ(c.compress_ratios, (std::vector<int>{0, 1, 0, 0, 1}));
  EXPECT_FALSE(mla_selects(c, 0));
  EXPECT_TRUE(mla_selects(c, 1));
  const json written = mla_write_config(c, false);
  EXPECT_EQ(written["attnscope_indexer_layers"], json({1, 4}));
  EXPECT_EQ(must(written).compress_ratios, c.compress_ratios);
  EXPECT_FALSE(mla_write_config(*preset("tiny-v3.2"), false).contains("attnscope_indexer_layers"));
  file["attnscope_indexer_layers"] = {5};
  refused(file, {"attnscope_indexer_layers", "0 to 4"});
}

TEST_F(MlaFamily, RefusesWhatItCannotCompute) {
  const auto with = [](const char* key, const json& value) {
    json c = v3_2();
    c[key] = value;
    return c;
  };
  refused(with("kv_lora_rank", 256), {"kv_lora_rank"});
  refused(with("qk_rope_head_dim", 32), {"qk_rope_head_dim"});
  refused(with("qk_nope_head_dim", 12), {"qk_nope_head_dim", "multiples of 8"});
  refused(with("index_head_dim", 64), {"index_head_dim"});
  refused(with("attention_bias", true), {"attention_bias"});
  refused(with("attnscope_latent_rows", "fp4"), {"attnscope_latent_rows"});
  json scaled = v3_2();
  scaled["rope_scaling"]["mscale"] = 0.7;
  refused(scaled, {"rope_scaling.mscale", "mscale_all_dim"});
  scaled["rope_scaling"]["type"] = "linear";
  refused(scaled, {"rope_scaling.type", "linear"});
}

TEST_F(MlaFamily, ATokenHasALatentRowAndAnIndexKey) {
  const CacheLayout layout = build_cache_layout(*preset("v3.2", {0, 7}));
  ASSERT_EQ(layout.specs.size(), 4u);
  for (int i = 0; i < 2; ++i) {
    const CacheSpec &latent = *layout.find(i, kLatentCache),
                    &key = *layout.find(i, kTokenIndexCache);
    EXPECT_EQ(latent.row_bytes(), AS_LATENT_656_BYTES);
    EXPECT_EQ(latent.rows_per_block, 64);
    EXPECT_EQ(latent.page_bytes, 64 * AS_LATENT_656_BYTES);
    EXPECT_EQ(key.row_bytes(), 132);
    EXPECT_EQ(latent.group, key.group) << "one table serves both";
    EXPECT_EQ(latent.sharding, CacheSharding::kReplicated);
    EXPECT_EQ(key.sharding, CacheSharding::kReplicated);
  }
  const CacheLayout plain = build_cache_layout(*preset("tiny-v3"));
  ASSERT_EQ(plain.specs.size(), 3u);
  EXPECT_EQ(plain.specs[0].row_bytes(), AS_LATENT_BF16_BYTES);
}

// The constants of kernels are those of the format.
TEST_F(MlaFamily, RowsLieWhereTheFormatSays) {
  const as_row_layout l = as_row_layout_of(AS_RECORD_LATENT_656, AS_MLA_WIDTH, 1, 64);
  ASSERT_EQ(l.row, AS_LATENT_656_BYTES);
  for (int i = 0; i < AS_MLA_WIDTH; ++i) {
    const as_element_place e = as_element_at(&l, 3, 0, i);
    const bool code = i < AS_LATENT_656_CODES;
    EXPECT_EQ(e.at, 3 * AS_LATENT_656_BYTES +
                        (code ? i : AS_LATENT_656_ROPE + 2 * (i - AS_LATENT_656_CODES)));
    EXPECT_EQ(
        e.scale,
        code ? 3 * AS_LATENT_656_BYTES + AS_LATENT_656_SCALES + 4 * (i / AS_LATENT_656_BLOCK) : -1);
  }
  std::vector<unsigned char> pages(2 * 64 * AS_LATENT_656_BYTES);
  as_cache cache{};
  cache.data = make_tensor(pages.data(), {2, 64 * std::int64_t{AS_LATENT_656_BYTES}});
  cache.record = AS_RECORD_LATENT_656;
  cache.rows_per_block = 64;
  cache.width = AS_MLA_WIDTH;
  const as_row_layout own = as_cache_layout(&cache);
  as_row_piece piece;
  for (const std::int64_t slot : {0, 63, 64, 127}) {
    ASSERT_EQ(as_row_piece_at(&own, &cache, slot, 0, &piece), 1);
    EXPECT_EQ(as_mla_row(&cache, slot), piece.bytes);
  }
}

TEST_F(MlaFamily, LayersHaveTheOpsOfTheirKind) {
  const auto whole = model_graph(*preset("tiny-v3"));
  EXPECT_EQ(whole->layer(0).find(AS_OP_SPARSE_MLA_ATTENTION), nullptr);
  EXPECT_EQ(whole->layer(0).find(AS_OP_INDEX_QUERY), nullptr);
  ASSERT_NE(whole->layer(0).find(AS_OP_MLA_ATTENTION), nullptr);
  EXPECT_EQ(whole->before.find(AS_OP_SLOT_MAPPING)->find("seen_lens"), nullptr);
  const auto selected = model_graph(*preset("tiny-v3.2"));
  EXPECT_EQ(selected->layer(0).find(AS_OP_MLA_ATTENTION), nullptr);
  const Node* attention = selected->layer(0).find(AS_OP_SPARSE_MLA_ATTENTION);
  ASSERT_NE(attention, nullptr);
  EXPECT_EQ(attention->find("indices")->value,
            selected->layer(0).find(AS_OP_TOPK_TO_SLOTS)->find("slots")->value);
  EXPECT_STREQ(layer_type_name(*preset("tiny-v3"), 0), "MLA");
  EXPECT_STREQ(layer_type_name(*preset("tiny-v3.2"), 0), "DSA");
}

// Heads are dealt out with their rows of q_b_proj and kv_b_proj and columns of o_proj; what makes
// rows, keys and selections is on every rank.
TEST_F(MlaFamily, RanksShareHeadsAndNothingElse) {
  const auto graph = model_graph(*preset("tiny-v3.2"));
  const std::map<std::string, Shard> right = {{"q_kv_a", Shard::kWhole},
                                              {"q_b", Shard::kRows},
                                              {"kv_b", Shard::kRows},
                                              {"o_proj", Shard::kColumns},
                                              {"indexer.wq_b", Shard::kWhole},
                                              {"indexer.wk", Shard::kWhole},
                                              {"indexer.weights_proj", Shard::kWhole}};
  for (const auto& [name, shard] : right) EXPECT_EQ(shard_of(*graph, name), shard) << name;
  const RankSplit split = rank_split(*graph, graph->layer(0));
  EXPECT_EQ(split.ops,
            (std::vector<as_op_id>{AS_OP_Q_B_PROJ, AS_OP_MLA_Q_ABSORB, AS_OP_SPARSE_MLA_ATTENTION,
                                   AS_OP_MLA_V_UP, AS_OP_O_PROJ}));
}

TEST_F(MlaFamily, NamesArePublishedOnes) {
  for (const char* name : {"layers.3.self_attn.kv_a_proj_with_mqa.weight",
                           "model.layers.3.self_attn.kv_a_proj_with_mqa.weight"}) {
    EXPECT_EQ(mla_published_name(name), "model.layers.3.self_attn.kv_a_proj_with_mqa.weight");
  }
  EXPECT_EQ(mla_published_name("model.layers.3.self_attn.q_a_proj.weight_scale_inv"),
            "model.layers.3.self_attn.q_a_proj.scale");
  EXPECT_EQ(mla_published_name("lm_head.weight"), "lm_head.weight");
  std::set<std::string> names;
  const ModelWeights weights = mla_weights(*preset("tiny-v3.2"));
  for (const WeightSpec& spec : weights.layers[1]) {
    for (const WeightPart& part : spec.parts) names.insert(part.name);
  }
  for (const char* leaf :
       {"q_a_proj.weight", "q_a_layernorm.weight", "q_b_proj.weight", "kv_a_proj_with_mqa.weight",
        "kv_a_layernorm.weight", "kv_b_proj.weight", "o_proj.weight", "indexer.wq_b.weight",
        "indexer.wk.weight", "indexer.k_norm.weight", "indexer.k_norm.bias",
        "indexer.weights_proj.weight"}) {
    EXPECT_TRUE(names.contains(std::string("model.layers.1.self_attn.") + leaf)) << leaf;
  }
}

}  // namespace mla_family_test
}  // namespace attnscope
