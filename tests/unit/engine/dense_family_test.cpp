// Models of dense attention: their config.json in both directions, rules, caches, graph and names.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/family/dense/dense.h"
#include "engine/family/model_weights.h"
#include "engine/family/models.h"
#include "engine/io/json_file.h"
#include "engine/model/numbers.h"
#include "kernels/params/paged_params.h"
#include "tests/unit/engine/config_fixture.h"

namespace attnscope {
namespace dense_family_test {

using nlohmann::json;

class DenseFamily : public ConfigTest {};

json llama() {
  return json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048,
    "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
    "rope_theta": 500000.0, "rms_norm_eps": 1e-5, "max_position_embeddings": 131072,
    "intermediate_size": 8192, "vocab_size": 128256, "tie_word_embeddings": true})");
}

TEST_F(DenseFamily, WhatIsWrittenIsReadAgain) {
  for (const FamilyPreset& one : dense_presets()) {
    const std::string name = one.name;
    SCOPED_TRACE(name);
    const ModelConfig c = *preset(name);
    EXPECT_TRUE(validate(c));
    const ModelConfig again = must(json(dense_write_config(c, false)));
    EXPECT_EQ(again.family, "dense");
    EXPECT_EQ(dense_write_config(again, false), dense_write_config(c, false));
    EXPECT_EQ(again.dense.windows, c.dense.windows);
    EXPECT_EQ(again.dense.qk_norm, c.dense.qk_norm);
    EXPECT_EQ(again.dense.weight_plus_one, c.dense.weight_plus_one);
    EXPECT_EQ(again.dense.tied, c.dense.tied);
    EXPECT_EQ(again.dense.sinks, c.dense.sinks);
    EXPECT_EQ(again.dense.alibi_bias_max, c.dense.alibi_bias_max);
    EXPECT_EQ(again.dense.unrotated, c.dense.unrotated);
    EXPECT_EQ(again.dense.encoder, c.dense.encoder);
    EXPECT_EQ(again.rope_dim, c.rope_dim);
    EXPECT_EQ(again.kv_heads, c.kv_heads);
  }
}

TEST_F(DenseFamily, ReadsPublishedFiles) {
  const ModelConfig c = must(llama());
  EXPECT_EQ(c.heads, 32);
  EXPECT_EQ(c.kv_heads, 8);
  EXPECT_EQ(c.rope_dim, 64);
  EXPECT_EQ(c.rope_theta, 500000);
  EXPECT_EQ(c.published_layers(), 16);
  EXPECT_EQ(c.dense.windows, std::vector<int>(16, 0));
  EXPECT_TRUE(c.dense.tied);
  EXPECT_FALSE(c.dense.qk_norm);

  json gemma = llama();
  gemma["architectures"] = {"Gemma3ForCausalLM"};
  gemma["model_type"] = "gemma3_text";
  gemma["sliding_window"] = 512;
  gemma["query_pre_attn_scalar"] = 256;
  gemma.erase("rope_theta");
  const ModelConfig g = must(gemma);
  EXPECT_EQ(g.rope_theta, 1e6);
  EXPECT_EQ(layer_rope(g, 0).base, 1e4);
  EXPECT_EQ(layer_rope(g, 5).base, 1e6);
  EXPECT_EQ(dense_window(g, 4), 512);
  EXPECT_EQ(dense_window(g, 5), 0);
  EXPECT_EQ(g.dense.scale, 1.0 / 16);
  EXPECT_TRUE(g.dense.qk_norm && g.dense.weight_plus_one);

  json mistral = llama();
  mistral["architectures"] = {"MistralForCausalLM"};
  mistral["model_type"] = "mistral";
  mistral["sliding_window"] = 4096;
  EXPECT_EQ(must(mistral).dense.windows, std::vector<int>(16, 4096));
  mistral["sliding_window"] = nullptr;
  EXPECT_EQ(must(mistral).dense.windows, std::vector<int>(16, 0));

  json qwen = llama();
  qwen["architectures"] = {"Qwen3ForCausalLM"};
  qwen["model_type"] = "qwen3";
  qwen["sliding_window"] = 64;
  EXPECT_EQ(must(qwen).dense.windows, std::vector<int>(16, 0)) << "use_sliding_window is false";
  qwen["use_sliding_window"] = true;
  qwen["max_window_layers"] = 15;
  EXPECT_EQ(must(qwen).dense.windows.back(), 64);
  EXPECT_EQ(must(qwen).dense.windows.front(), 0);
  EXPECT_TRUE(must(qwen).dense.qk_norm);
}

TEST_F(DenseFamily, RefusesWhatItCannotCompute) {
  const auto with = [](const char* key, const json& value) {
    json c = llama();
    c[key] = value;
    return c;
  };
  refused(with("attention_bias", true), {"attention_bias"});
  refused(with("alibi_bias_max", 0), {"alibi_bias_max"});
  refused(with("attn_config", {{"alibi", "yes"}}), {"attn_config.alibi"});
  json biased = with("architectures", {"GptOssForCausalLM"});
  biased["model_type"] = "gpt_oss";
  refused(biased, {"attention_bias", "set it to false"});
  refused(with("rope_scaling", {{"rope_type", "llama3"}, {"factor", 8}}),
          {"rope_scaling.rope_type", "llama3", "allowed: default"});
  refused(with("quantization_config", {{"quant_method", "fp8"}}), {"quantization_config"});
  refused(with("num_key_value_heads", 5), {"num_key_value_heads", "divisors of"});
  refused(with("head_dim", 12), {"head_dim", "multiples of 8"});
  refused(with("head_dim", 1024), {"head_dim", "8 to 512"});
  refused(with("attnscope_block_size", 0), {"attnscope_block_size"});
  refused(with("model_type", "gpt2"), {"model_type", "gpt2", "llama"});
  refused(with("model_type", "deepseek_v4"), {"model_type", "allowed: llama"});
  json windows = with("sliding_window", 8);
  windows["layer_types"] = std::vector<std::string>(16, "full_attention");
  windows["layer_types"][3] = "linear_attention";
  refused(windows, {"layer_types[3]", "linear_attention", "chunked_attention"});
}

// Sinks are part of the architecture; layers are as layer_types says.
TEST_F(DenseFamily, ReadsGptOss) {
  json file = llama();
  file["architectures"] = {"GptOssForCausalLM"};
  file["model_type"] = "gpt_oss";
  file["attention_bias"] = false;
  file["sliding_window"] = 128;
  for (int i = 0; i < 16; ++i) {
    file["layer_types"].push_back(i % 2 == 0 ? "sliding_attention" : "full_attention");
  }
  const ModelConfig c = must(file);
  EXPECT_TRUE(c.dense.sinks);
  EXPECT_EQ(dense_window(c, 0), 128);
  EXPECT_EQ(dense_window(c, 1), 0);
  EXPECT_EQ(dense_write_config(c, false)["model_type"], "gpt_oss");
}

// With ALiBi nothing is rotated, but where the file says so.
TEST_F(DenseFamily, ReadsAlibiAndAScaleOfItsOwn) {
  json falcon = llama();
  falcon["alibi"] = true;
  ModelConfig c = must(falcon);
  EXPECT_EQ(c.dense.alibi_bias_max, 8);
  EXPECT_EQ(c.dense.unrotated, std::vector<int>(16, 1));
  EXPECT_EQ(layer_rope(c, 3).base, 0);
  falcon["no_rope_layers"] = std::vector<int>(16, 1);
  EXPECT_EQ(layer_rope(must(falcon), 3).base, 500000);
  json mpt = llama();
  mpt["attn_config"] = {{"alibi", true}, {"alibi_bias_max", 16}, {"softmax_scale", 0.5}};
  c = must(mpt);
  EXPECT_EQ(c.dense.alibi_bias_max, 16);
  EXPECT_EQ(c.dense.scale, 0.5);
  mpt["attn_config"] = {{"alibi", false}};
  EXPECT_EQ(must(mpt).dense.alibi_bias_max, 0);
  json granite = llama();
  granite["attention_multiplier"] = 0.0078125;
  c = must(granite);
  EXPECT_EQ(c.dense.scale, 0.0078125);
  EXPECT_EQ(c.dense.alibi_bias_max, 0);
  as_paged_attention_params p{};
  dense_layer_numbers(AS_OP_PAGED_ATTENTION, 0, c, 16, &p);
  EXPECT_EQ(p.scale, 0.0078125);
}

// Of 8 heads 1/2 to 1/256; of 12 those, then every second one of 16, from 2^-0.5 on.
TEST_F(DenseFamily, SlopesFollowTheNumberOfHeads) {
  const std::vector<float> eight = dense_slopes(8, 8), twelve = dense_slopes(12, 8);
  for (int h = 0; h < 8; ++h) {
    EXPECT_EQ(eight[to_size(h)], std::ldexp(1.0f, -h - 1));
    EXPECT_EQ(twelve[to_size(h)], eight[to_size(h)]);
  }
  for (int h = 8; h < 12; ++h) {
    EXPECT_EQ(twelve[to_size(h)], static_cast<float>(std::exp2(-0.5 - (h - 8))));
  }
  EXPECT_EQ(dense_slopes(1, 8), std::vector<float>{1.0f / 256});
  EXPECT_EQ(dense_slopes(2, 16), (std::vector<float>{1.0f / 256, 1.0f / 65536}));
  // A rank has those of its heads among all. They are no parameters and in no file.
  ModelConfig rank = *preset("tiny-alibi");
  rank.heads = 3;
  rank.kv_heads = 1;
  rank.parallel = {4, 3};
  const Weights weights = allocate_weights(rank);
  const Buffer<float>& own = weights.layers[0]["alibi_slopes"].f32;
  ASSERT_EQ(own.size(), 3);
  for (std::int64_t h = 0; h < 3; ++h) EXPECT_EQ(own.data()[h], twelve[to_size(h + 9)]);
  ModelConfig without = *preset("tiny-alibi");
  without.dense.alibi_bias_max = 0;
  EXPECT_EQ(parameter_count(*preset("tiny-alibi")), parameter_count(without));
}

// Without caches: no group, no page, no table; attention follows the projections.
TEST_F(DenseFamily, EncodersKeepNothing) {
  for (const char* name : {"tiny-bert", "tiny-vit"}) {
    const ModelConfig c = *preset(name);
    EXPECT_TRUE(dense_caches(c).empty());
    EXPECT_TRUE(build_cache_layout(c).groups.empty());
    const auto graph = model_graph(c);
    EXPECT_EQ(graph->before.ops(), (std::vector<as_op_id>{AS_OP_SCHEDULE}));
    const std::vector<as_op_id> right = {AS_OP_ATTN_NORM, AS_OP_Q_PROJ,           AS_OP_K_PROJ,
                                         AS_OP_V_PROJ,    AS_OP_VARLEN_ATTENTION, AS_OP_O_PROJ,
                                         AS_OP_RESIDUAL};
    for (const LayerGraph& layer : graph->layers) EXPECT_EQ(layer.ops(), right);
    EXPECT_STREQ(dense().layer_type(c, 0), "encoder");
  }
  json file = llama();
  file["is_causal"] = false;
  const ModelConfig c = must(file);
  EXPECT_TRUE(c.dense.encoder);
  EXPECT_EQ(layer_rope(c, 0).base, 0);
  as_varlen_attention_params p{};
  dense_layer_numbers(AS_OP_VARLEN_ATTENTION, 0, c, 0, &p);
  EXPECT_EQ(p.causal, 0);
  EXPECT_EQ(p.window_left, -1);
  EXPECT_EQ(p.window_right, -1);
  EXPECT_EQ(p.scale, 0.125);
  const auto with = [&](const char* key, const json& value) {
    json changed = file;
    changed[key] = value;
    return changed;
  };
  refused(with("no_rope_layers", std::vector<int>(16, 1)), {"no_rope_layers", "is_causal"});
  refused(with("attnscope_sinks", true), {"attnscope_sinks", "is_causal"});
  json windows = with("sliding_window", 64);
  windows["model_type"] = "mistral";
  refused(windows, {"sliding_window", "is_causal"});
  json norms = with("model_type", "qwen3");
  refused(norms, {"norms of queries and keys"});
}

TEST_F(DenseFamily, CachesAreKeptByWindow) {
  const CacheLayout layout = build_cache_layout(*preset("tiny-gemma"));
  ASSERT_EQ(layout.specs.size(), 12u);
  EXPECT_EQ(layout.groups.front().name, "full");
  std::set<int> layers;
  for (std::size_t g = 1; g < layout.groups.size(); ++g) {
    EXPECT_EQ(layout.groups[g].window, 32);
    for (const int s : layout.groups[g].specs) layers.insert(layout.specs[to_size(s)].layer);
  }
  EXPECT_EQ(layers, (std::set<int>{0, 1, 2, 3, 4}));
  for (int i = 0; i < 6; ++i) {
    const CacheSpec &k = *layout.find(i, kKeyCache), &v = *layout.find(i, kValueCache);
    EXPECT_EQ(k.group, v.group) << "one table serves both";
    EXPECT_NE(k.offset, v.offset);
    EXPECT_EQ(k.rows_per_block, 8);
    EXPECT_EQ(k.row_bytes(), 2 * 64 * 2);
    EXPECT_EQ(token_rows(layout, i), &k);
  }
}

TEST_F(DenseFamily, EachLayerHasTheSameOps) {
  const auto graph = model_graph(*preset("tiny-mqa"));
  const std::vector<as_op_id> right = {AS_OP_ATTN_NORM, AS_OP_Q_PROJ,         AS_OP_K_PROJ,
                                       AS_OP_V_PROJ,    AS_OP_ROPE_KV_INSERT, AS_OP_PAGED_ATTENTION,
                                       AS_OP_O_PROJ,    AS_OP_RESIDUAL};
  for (const LayerGraph& layer : graph->layers) EXPECT_EQ(layer.ops(), right);
  EXPECT_NE(graph->layer(0).find(AS_OP_PAGED_ATTENTION)->find("sinks"), nullptr);
  const auto llama_graph = model_graph(*preset("tiny-llama"));
  EXPECT_EQ(llama_graph->layer(0).find(AS_OP_PAGED_ATTENTION)->find("sinks"), nullptr);
  EXPECT_EQ(llama_graph->layer(0).find(AS_OP_ROPE_KV_INSERT)->find("q_weight"), nullptr);
}

TEST_F(DenseFamily, NumbersFollowTheModel) {
  const ModelConfig c = *preset("tiny-mqa");
  as_paged_attention_params p{};
  dense_layer_numbers(AS_OP_PAGED_ATTENTION, 0, c, 48, &p);
  EXPECT_EQ(p.window, 24);
  EXPECT_EQ(p.soft_cap, 20);
  EXPECT_EQ(p.scale, 1 / std::sqrt(128.0));
  EXPECT_EQ(p.causal, 1);
  dense_layer_numbers(AS_OP_PAGED_ATTENTION, 1, c, 48, &p);
  EXPECT_EQ(p.window, 0);
}

TEST_F(DenseFamily, NamesOfTensors) {
  const auto name = dense_published_name;
  EXPECT_EQ(name("model.layers.2.self_attn.q_proj.weight"),
            "model.layers.2.self_attn.q_proj.weight");
  EXPECT_EQ(name("layers.2.input_layernorm.weight"), "model.layers.2.input_layernorm.weight");
  EXPECT_EQ(name("language_model.model.layers.0.self_attn.k_norm.weight"),
            "model.layers.0.self_attn.k_norm.weight");
  EXPECT_EQ(name("embed_tokens.weight"), "model.embed_tokens.weight");
  EXPECT_EQ(name("lm_head.weight"), "lm_head.weight");
  EXPECT_EQ(name("vision_tower.x"), "vision_tower.x");
}

// Weights of a layer are the same in every subset of layers.
TEST_F(DenseFamily, WeightsAreNamedByPublishedLayer) {
  const Weights all = synthetic_weights(*preset("tiny-gemma"), 5, nullptr);
  const Weights one = synthetic_weights(*preset("tiny-gemma", {5}), 5, nullptr);
  const Buffer<bf16_t>&a = all.layers[5]["k_proj"].bf16, &b = one.layers[0]["k_proj"].bf16;
  ASSERT_EQ(a.shape(), (std::vector<std::int64_t>{128, 256}));
  for (std::int64_t i = 0; i < a.size(); ++i) ASSERT_EQ(a.data()[i].bits, b.data()[i].bits);
  EXPECT_GT(all.layers[0]["q_norm"].bf16.size(), 0);
  EXPECT_EQ(all.layers[0]["sinks"].f32.size(), 0);
}

}  // namespace dense_family_test
}  // namespace attnscope
