// First tokens in 16 bits beside rows of codes: the model's number, its rules, caches and groups,
// and what a block manager makes of a group that has rows of first tokens alone.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/backend/attention_request.h"
#include "engine/backend/attention_selector.h"
#include "engine/cache/cache_layout.h"
#include "engine/family/context_check.h"
#include "engine/family/dense/dense.h"
#include "engine/family/models.h"
#include "engine/model/numbers.h"
#include "engine/sched/explain.h"
#include "kernels/params/step_params.h"
#include "tests/unit/engine/blocks_bench.h"
#include "tests/unit/engine/config_fixture.h"

namespace attnscope {
namespace first_tokens_test {

using namespace blocks_test;
using nlohmann::json;

class FirstTokens : public ConfigTest {};

ModelConfig with_first(int tokens, const char* model = "tiny-llama-fp8") {
  ModelConfig c = *preset(model);
  EXPECT_TRUE(set_first_tokens(c, tokens));
  return c;
}

TEST_F(FirstTokens, AreReadAndWritten) {
  const ModelConfig c = with_first(32);
  EXPECT_EQ(c.dense.first_tokens_16bit, 32);
  EXPECT_EQ(must(json(dense_write_config(c, false))).dense.first_tokens_16bit, 32);
  EXPECT_FALSE(dense_write_config(*preset("tiny-llama-fp8"), false)
                   .contains("attnscope_first_tokens_16bit"));
}

TEST_F(FirstTokens, AreRefusedWhereTheySaveOrMeanNothing) {
  const auto why = [](const char* model, int tokens) {
    ModelConfig c = *preset(model);
    const Result<void> set = set_first_tokens(c, tokens);
    return set ? std::string() : set.error().message + "; " + set.error().hint;
  };
  EXPECT_EQ(why("tiny-llama-fp8", 0), "");
  EXPECT_EQ(why("tiny-llama-fp8", 8), "");
  EXPECT_NE(why("tiny-llama", 32).find("all rows have 16 bits"), std::string::npos);
  EXPECT_NE(why("tiny-llama-fp8", 12).find("multiples of 8, half a page"), std::string::npos);
  EXPECT_NE(why("tiny-llama-fp8", 1 << 23).find("multiples of 8"), std::string::npos);
  EXPECT_NE(why("tiny", 32).find("a format of their own"), std::string::npos);
  ModelConfig windows = *preset("tiny-mistral");
  ASSERT_TRUE(set_cache_dtype(windows, "fp8_tensor"));
  const auto refused = set_first_tokens(windows, 32);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().hint.find("no layer that runs sees its first tokens"),
            std::string::npos);
  ModelConfig single = *preset("tiny-mha");
  ASSERT_TRUE(set_cache_dtype(single, "fp8_tensor"));
  const auto odd = set_first_tokens(single, 32);
  ASSERT_FALSE(odd);
  EXPECT_NE(odd.error().hint.find("even block sizes"), std::string::npos);
  EXPECT_FALSE(check_context(with_first(32), {2, 1}));
}

// Blocks of both groups are as large as those of codes alone.
TEST_F(FirstTokens, LieInAGroupOfTheirOwn) {
  const CacheLayout layout = build_cache_layout(with_first(32));
  ASSERT_EQ(layout.groups.size(), 2u);
  EXPECT_EQ(layout.groups[0].kind, GroupKind::kFull);
  const CacheGroup& first = layout.groups[1];
  EXPECT_EQ(first.kind, GroupKind::kFirst);
  EXPECT_EQ(first.name, "first");
  EXPECT_EQ(first.block_tokens, 8);
  EXPECT_EQ(first.bytes, layout.groups[0].bytes);
  EXPECT_EQ(layout.block_stride, build_cache_layout(*preset("tiny-llama-fp8")).block_stride);
  for (const int s : first.specs) {
    EXPECT_EQ(layout.specs[to_size(s)].record, AS_RECORD_BF16);
    EXPECT_EQ(layout.specs[to_size(s)].rows_per_block, 8);
  }
  // 100 tokens are 7 pages, and their first 32 another 4.
  EXPECT_EQ(layout.demand(100, 64), 7 + 4);
  EXPECT_EQ(layout.demand(20, 64), 2 + 3);
  EXPECT_EQ(token_rows(layout, 0)->name, "k");
  EXPECT_EQ(value_rows(layout, 0)->name, "v");
  EXPECT_EQ(wide_rows(layout, 0, AS_CACHE_V, 31)->name, "v_wide");
  EXPECT_EQ(wide_rows(layout, 0, AS_CACHE_V, 32), nullptr);
}

// Layers that forget their first tokens keep none of them.
TEST_F(FirstTokens, AreOfLayersThatSeeAll) {
  ModelConfig c = *preset("tiny-gemma");
  ASSERT_TRUE(set_cache_dtype(c, "int8_token_head"));
  ASSERT_TRUE(set_first_tokens(c, 16));
  EXPECT_EQ(dense_first_tokens(c, 0), 0);
  EXPECT_EQ(dense_first_tokens(c, 5), 16);
  int wide = 0;
  for (const CacheSpec& spec : dense_caches(c)) wide += spec.id.nth == 1 ? 1 : 0;
  EXPECT_EQ(wide, 2);
  const auto graph = model_graph(c);
  EXPECT_EQ(graph->layer(0).find(AS_OP_PAGED_ATTENTION)->find("k_wide"), nullptr);
  EXPECT_NE(graph->layer(5).find(AS_OP_PAGED_ATTENTION)->find("wide_table"), nullptr);
  EXPECT_NE(graph->layer(5).find(AS_OP_ROPE_KV_INSERT)->find("wide_slots"), nullptr);
}

TEST_F(FirstTokens, NoBackendTakesThem) {
  const AttentionRegistry registry;
  const auto selection = explain_backends(registry, attention_request(with_first(32)));
  ASSERT_TRUE(selection);
  for (const BackendVerdict& v : selection->verdicts) {
    int rules = 0;
    for (const auto& broken : v.broken) rules += broken.rule == "first tokens" ? 1 : 0;
    if (v.backend->kind != AttentionLayerKind::kAttention) continue;
    EXPECT_EQ(rules, 1) << v.backend->name;
  }
}

TEST_F(FirstTokens, OpsAreToldByTheReachOfAGroup) {
  EXPECT_EQ(as_first_with_rows(as_reach_of_first(32)), 32);
  for (const std::int32_t reach : {0, 128, -64, -(1 << 30)}) {
    EXPECT_EQ(as_first_with_rows(reach), -1) << reach;
  }
  const GroupSpec first{GroupKind::kFirst, 8, 32, false};
  EXPECT_EQ(first.reach(), as_reach_of_first(32));
  EXPECT_EQ(first.first_seen(1000), 0);
  EXPECT_EQ(blocks_for(first, 20), 3);
  EXPECT_EQ(blocks_for(first, 1000), 4);
  EXPECT_EQ(full_blocks(first, 20), 2);
}

GroupSpec first(std::int32_t block, std::int32_t tokens) {
  return {GroupKind::kFirst, block, tokens, false};
}

TEST_F(FirstTokens, OptionsNeedWholeBlocksAndAnotherGroup) {
  EXPECT_FALSE(check_options(options(CacheProfile::kM, {full(16), first(8, 20)}, 40)));
  EXPECT_FALSE(check_options(options(CacheProfile::kM, {first(8, 16)}, 40)));
  EXPECT_FALSE(check_options(options(CacheProfile::kM, {full(16), flagged(first(8, 16))}, 40)));
  EXPECT_TRUE(check_options(options(CacheProfile::kM, {full(16), first(8, 16)}, 40)));
}

// A request takes blocks for its first tokens and none behind them; what is found again of a longer
// prefix is all of these.
TEST_F(FirstTokens, BlocksEndWithThemAndAreFoundAgain) {
  Bench bench(options(CacheProfile::kM, {full(16), first(8, 32)}, 60));
  KvRequest& one = bench.add(tokens(100));
  const Got got = bench.admit(one);
  ASSERT_TRUE(got.ok);
  EXPECT_EQ(got.fresh[0].size(), 7u);
  EXPECT_EQ(got.fresh[1].size(), 4u);
  KvRequest& again = bench.add(tokens(90));
  const Got hit = bench.admit(again);
  ASSERT_TRUE(hit.ok);
  EXPECT_EQ(hit.hit, 80);
  EXPECT_EQ(hit.hits[0].size(), 5u);
  EXPECT_EQ(hit.hits[1].size(), 4u);
  EXPECT_TRUE(hit.fresh[1].empty());
  KvRequest& early = bench.add(tokens(30));
  const Got part = bench.admit(early);
  ASSERT_TRUE(part.ok);
  EXPECT_EQ(part.hit, 16);
  EXPECT_EQ(part.hits[1].size(), 2u);
  // Without a block of the first tokens a hit ends before it.
  const std::int32_t gone = bench.kv.table(one.slot, 1).blocks[2];
  ASSERT_TRUE(bench.kv.evict(std::span(&gone, 1)));
  KvRequest& late = bench.add(tokens(95));
  const MissReport miss = explain_miss(bench.kv, late);
  EXPECT_EQ(miss.hit, 16);
  EXPECT_EQ(miss.groups[1].missing_entry, 2);
  EXPECT_EQ(miss.groups[0].reach, 80);
  const Got cut = bench.admit(late);
  ASSERT_TRUE(cut.ok);
  EXPECT_EQ(cut.hit, 16);
}

}  // namespace first_tokens_test
}  // namespace attnscope
