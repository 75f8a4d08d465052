// Layers of dense attention with chunks, and such without a rotary embedding: their config.json,
// what is refused, caches, graph, the tensors of a step that they have.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/family/dense/dense.h"
#include "engine/family/models.h"
#include "engine/io/json_file.h"
#include "engine/metadata/step_metadata.h"
#include "engine/model/numbers.h"
#include "kernels/params/paged_params.h"
#include "tests/unit/engine/config_fixture.h"

namespace attnscope {
namespace dense_chunks_test {

using nlohmann::json;

class DenseChunks : public ConfigTest {};

json llama4() {
  return json::parse(R"({
    "architectures": ["Llama4ForCausalLM"], "model_type": "llama4_text", "hidden_size": 256,
    "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32,
    "attention_chunk_size": 64, "use_qk_norm": false, "attn_temperature_tuning": false,
    "rope_theta": 500000.0, "rms_norm_eps": 1e-5, "max_position_embeddings": 131072,
    "vocab_size": 202048, "tie_word_embeddings": false})");
}

using Ints = std::vector<int>;

TEST_F(DenseChunks, EveryFourthLayerOfLlama4SeesAllAndTurnsNothing) {
  const ModelConfig c = must(llama4());
  EXPECT_EQ(c.dense.chunks, (Ints{64, 64, 64, 0, 64, 64, 64, 0}));
  EXPECT_EQ(c.dense.unrotated, (Ints{0, 0, 0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(c.dense.rope_style, AS_ROPE_GPTJ);
  EXPECT_EQ(layer_rope(c, 2).base, 500000);
  EXPECT_EQ(layer_rope(c, 3).base, 0);
  EXPECT_STREQ(layer_type_name(c, 2), "chunked");
  EXPECT_STREQ(layer_type_name(c, 3), "full");

  json other = llama4();
  other["no_rope_layer_interval"] = 2;
  EXPECT_EQ(must(other).dense.chunks, (Ints{64, 0, 64, 0, 64, 0, 64, 0}));
  other["no_rope_layers"] = {1, 1, 1, 1, 1, 1, 1, 0};
  EXPECT_EQ(must(other).dense.unrotated, (Ints{0, 0, 0, 0, 0, 0, 0, 1}));
  other["layer_types"] = std::vector<std::string>(8, "full_attention");
  other["layer_types"][1] = "chunked_attention";
  EXPECT_EQ(must(other).dense.chunks, (Ints{0, 64, 0, 0, 0, 0, 0, 0}));
  other.erase("attention_chunk_size");
  EXPECT_EQ(must(other).dense.chunks[1], 8192) << "what Llama 4 has without the key";
}

TEST_F(DenseChunks, AreWrittenAndReadAgain) {
  const ModelConfig c = *preset("tiny-llama4");
  EXPECT_TRUE(validate(c));
  const ModelConfig again = must(json(dense_write_config(c, false)));
  EXPECT_EQ(again.dense.chunks, c.dense.chunks);
  EXPECT_EQ(again.dense.unrotated, c.dense.unrotated);
  EXPECT_EQ(again.dense.rope_style, c.dense.rope_style);
  EXPECT_EQ(json(dense_write_config(c, false)).at("model_type"), "llama4_text");
  ModelConfig example = dense_example();
  example.layers = {0, 1, 2, 3};
  EXPECT_TRUE(validate(example));
  const ModelConfig mixed = must(json(dense_write_config(example, false)));
  EXPECT_EQ(mixed.dense.chunks, example.dense.chunks);
  EXPECT_EQ(mixed.dense.windows, example.dense.windows);
}

TEST_F(DenseChunks, WhatCannotBeIsRefusedByName) {
  const auto with = [](const char* key, const json& value) {
    json c = llama4();
    c[key] = value;
    return c;
  };
  refused(with("use_qk_norm", true), {"use_qk_norm", "set it to false"});
  refused(with("attn_temperature_tuning", true), {"attn_temperature_tuning", "set it to false"});
  json silent = llama4();
  silent.erase("use_qk_norm");
  refused(silent, {"use_qk_norm"});
  refused(with("attention_chunk_size", 24),
          {"attention_chunk_size: 24", "multiples of attnscope_block_size (16)"});
  refused(with("attention_chunk_size", 8), {"attention_chunk_size: 8", "multiples of"});
  refused(with("attention_chunk_size", 0), {"attention_chunk_size"});
  refused(with("no_rope_layers", {1, 0}), {"no_rope_layers", "2 entries for 8 layers"});
  refused(with("no_rope_layers", {1, 0, 2, 1, 1, 1, 1, 1}), {"no_rope_layers"});
  json llama = with("model_type", "llama");
  llama["architectures"] = {"LlamaForCausalLM"};
  llama.erase("attention_chunk_size");
  llama["layer_types"] = std::vector<std::string>(8, "chunked_attention");
  refused(llama, {"attention_chunk_size", "is missing", "layer 0"});

  ModelConfig c = *preset("tiny-llama4");
  c.dense.chunks[1] = 64;
  auto ok = validate(c);
  ASSERT_FALSE(ok);
  EXPECT_NE(ok.error().text().find("chunk of layer 1"), std::string::npos) << ok.error().text();
  c = *preset("tiny-llama4");
  c.window = c.dense.windows[0] = 8;
  ok = validate(c);
  ASSERT_FALSE(ok);
  EXPECT_NE(ok.error().text().find("a window together with a chunk"), std::string::npos);
  c = *preset("tiny-llama4");
  c.dense.unrotated.pop_back();
  ok = validate(c);
  ASSERT_FALSE(ok);
  EXPECT_NE(ok.error().text().find("one entry a layer, 4"), std::string::npos) << ok.error().text();
}

TEST_F(DenseChunks, CachesAreGivenBackByChunk) {
  const CacheLayout layout = build_cache_layout(*preset("tiny-llama4"));
  ASSERT_EQ(layout.groups.size(), 4u) << "as wide as the full group, of one layer";
  EXPECT_EQ(layout.chunk_groups, (Ints{1, 2, 3}));
  for (const int g : layout.chunk_groups) {
    const CacheGroup& group = layout.groups[to_size(g)];
    EXPECT_EQ(group.kind, GroupKind::kChunked);
    EXPECT_EQ(group.reach(), -32);
    EXPECT_EQ(group.first_seen(31), 0);
    EXPECT_EQ(group.first_seen(32), 32);
    EXPECT_EQ(group.first_seen(95), 64);
  }
  EXPECT_EQ(layout.groups[0].reach(), 0);
}

TEST_F(DenseChunks, AttentionIsBoundToTheBatchOfChunks) {
  const ModelConfig config = *preset("tiny-llama4");
  const auto graph = model_graph(config);
  EXPECT_EQ(graph->before.ops(), (std::vector<as_op_id>{AS_OP_SCHEDULE, AS_OP_BLOCK_TABLES,
                                                        AS_OP_SLOT_MAPPING, AS_OP_LOCAL_BATCH}));
  const auto bound = [&](int layer, const char* tap) {
    return graph->layer(layer).find(AS_OP_PAGED_ATTENTION)->find(tap)->name;
  };
  EXPECT_EQ(bound(0, "table"), "local_tables");
  EXPECT_EQ(bound(0, "seq_lens"), "local_seq_lens");
  EXPECT_EQ(bound(3, "table"), "tables");
  EXPECT_EQ(bound(3, "positions"), "positions");
  EXPECT_EQ(model_graph(*preset("tiny-llama"))->before.find(AS_OP_LOCAL_BATCH), nullptr);
  EXPECT_EQ(table_cache(AS_OP_PAGED_ATTENTION), kKeyCache);

  as_local_batch_params p{};
  dense_step_numbers(AS_OP_LOCAL_BATCH, config, build_cache_layout(config), 0, 0, &p);
  EXPECT_EQ(p.chunk, 32);
  EXPECT_EQ(p.block_size, 16);
}

// What references are given: requests that compute something, at their own positions.
TEST_F(DenseChunks, ReferencesSeeWholeRequests) {
  const ModelConfig config = *preset("tiny-llama4");
  StepMetadata step;
  step.live = {4, 7, 9};
  step.token_to_req = {0, 0, 2};
  step.positions = {31, 32, 5};
  step.seq_lens = {33, 60, 6};
  LogicalMetadata out;
  out.caches.push_back({.tokens_per_row = 1, .rows = {}, .table = {100, 200, 300}});
  dense_logical_lists(step, config, out);
  ASSERT_EQ(out.own.size(), 9u);
  EXPECT_EQ(out.own[0].numbers, (std::vector<std::int32_t>{0, 0, 1}));
  EXPECT_EQ(out.own[1].slots, step.positions);
  EXPECT_EQ(out.own[3].numbers, (std::vector<std::int32_t>{33, 6, 0}));
  EXPECT_EQ(out.own[4].numbers, (std::vector<std::int32_t>{100, 300, -1}));
  dense_logical_lists(step, *preset("tiny-llama"), out);
  EXPECT_TRUE(out.own[0].empty()) << "no layer has chunks";
}

}  // namespace dense_chunks_test
}  // namespace attnscope
