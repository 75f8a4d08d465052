// How a metadata builder takes a batch: decodes first, chunks of prefill, the graph of a step.
#include "engine/metadata/batch_plan.h"

#include <gtest/gtest.h>

namespace attnscope {
namespace batch_plan_test {

using Numbers = std::vector<std::int64_t>;

// Requests by tokens computed before and in the step; sampled: those that are computed to their
// end.
StepMetadata batch(const Numbers& computed, const Numbers& query, bool sampled = false) {
  StepMetadata step;
  step.query_start_loc.push_back(0);
  for (std::size_t r = 0; r < query.size(); ++r) {
    step.live.push_back(static_cast<std::int32_t>(10 + r));
    step.num_computed.push_back(static_cast<std::int32_t>(computed[r]));
    step.num_scheduled_tokens.push_back(static_cast<std::int32_t>(query[r]));
    for (std::int64_t t = 0; t < query[r]; ++t) {
      if (sampled) step.sample_rows.push_back(step.num_tokens_in_step());
      step.positions.push_back(computed[r] + t);
    }
    step.query_start_loc.push_back(static_cast<std::int32_t>(step.positions.size()));
    step.seq_lens.push_back(static_cast<std::int32_t>(computed[r] + query[r]));
  }
  return step;
}

Numbers rows_of(const BatchPlan& plan) {
  Numbers rows;
  for (const BatchRow& row : plan.rows) rows.push_back(row.row);
  return rows;
}

TEST(BatchPlan, DecodesStandFirstAndTheOthersFillTheirPlaces) {
  // Request 0 and 3 prefill; 0 and 2 trade places, 1 and 3 stay where they are.
  const BatchPlan plan = batch_plan(batch({0, 70, 300, 128}, {512, 1, 1, 256}), {});
  EXPECT_EQ(rows_of(plan), (Numbers{2, 1, 0, 3}));
  EXPECT_EQ(plan.moved, 2);
  EXPECT_EQ(plan.decodes, 2);
  EXPECT_EQ(plan.decode_tokens, 2);
  EXPECT_EQ(plan.prefills(), 2);
  EXPECT_EQ(plan.prefill_tokens(), 768);
  EXPECT_EQ(plan.query_start_loc, (Numbers{0, 1, 2, 514, 770}));
  EXPECT_TRUE(plan.uniform);
  // The two definitions of a token's position agree, in the new order too.
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    const BatchRow& row = plan.rows[i];
    for (std::int64_t t = plan.query_start_loc[i]; t < plan.query_start_loc[i + 1]; ++t) {
      EXPECT_EQ(row.length() - row.query + (t - plan.query_start_loc[i]),
                row.computed + t - plan.query_start_loc[i]);
    }
    EXPECT_EQ(plan.query_start_loc[i + 1] - plan.query_start_loc[i], row.query);
  }
  EXPECT_EQ(decodes_first({true, true, false}), (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_EQ(decodes_first({false, false, true, true, true}),
            (std::vector<std::size_t>{3, 4, 2, 0, 1}));
  EXPECT_TRUE(decodes_first({}).empty());
}

TEST(BatchPlan, DraftsRaiseTheThreshold) {
  const StepMetadata step = batch({90, 20, 0, 55}, {4, 1, 5, 2});
  BatchPlan plan = batch_plan(step, {.decode_threshold = 4});
  EXPECT_EQ(plan.decodes, 3);
  EXPECT_EQ(rows_of(plan), (Numbers{0, 1, 3, 2}));
  EXPECT_FALSE(plan.uniform) << "4, 1 and 2 tokens";
  plan = batch_plan(step, {.decode_threshold = 1});
  EXPECT_EQ(plan.decodes, 1);
  EXPECT_EQ(rows_of(plan), (Numbers{1, 0, 2, 3}));
  EXPECT_TRUE(batch_plan(batch({9, 8}, {4, 4}), {.decode_threshold = 4}).uniform);
}

TEST(BatchPlan, WhoComputesNothingIsNotInTheBatch) {
  const BatchPlan plan = batch_plan(batch({5, 0, 7}, {1, 0, 1}, true), {});
  EXPECT_EQ(rows_of(plan), (Numbers{0, 2}));
  EXPECT_EQ(plan.tokens, 2);
  const BatchPlan none = batch_plan(batch({5}, {0}), {});
  EXPECT_TRUE(none.rows.empty());
  EXPECT_EQ(none.graph, 0);
  EXPECT_EQ(none.why_none, "the step computes no token");
}

// Six prefills of 512 tokens, each behind 1588 others: of 2100 tokens 525 entries of four are
// whole, and 512 + 127 window rows are gathered.
TEST(BatchPlan, ChunksOfPrefillStayBelowTheirArea) {
  BatchRules rules;
  rules.max_model_len = 4096;
  rules.token_budget = 512;
  rules.ratios = {0, 4, 128};
  const Numbers computed(6, 1588), query(6, 512);
  const BatchPlan plan = batch_plan(batch(computed, query), rules);
  ASSERT_EQ(plan.chunks.size(), 3u);
  // 4 * (4096 / 4 + 128 + 512); five times 525 + 639 are 5820, six are beyond it.
  const PrefillChunks& c4 = plan.chunks[1];
  EXPECT_EQ(c4.ratio, 4);
  EXPECT_EQ(c4.limit, 6656);
  ASSERT_EQ(c4.chunks.size(), 2u);
  EXPECT_EQ(c4.chunks[0].compressed, 525);
  EXPECT_EQ(c4.chunks[0].gathered, 639);
  EXPECT_EQ(c4.chunks[0].end, 5);
  EXPECT_EQ(c4.chunks[0].area(), 5820);
  EXPECT_EQ(c4.chunks[1].begin, 5);
  EXPECT_EQ(c4.chunks[1].area(), 1164);
  // 4 * (32 + 128 + 512); 16 + 639 rows each.
  EXPECT_EQ(plan.chunks[2].limit, 2688);
  EXPECT_EQ(plan.chunks[2].chunks[0].area(), 4 * 655);
  // Without entries: 4 * (128 + 512), 639 rows each.
  EXPECT_EQ(plan.chunks[0].limit, 2560);
  EXPECT_EQ(plan.chunks[0].chunks[0].area(), 4 * 639);
}

TEST(BatchPlan, AChunkIsAsWideAsItsLongestRequest) {
  BatchRules rules;
  rules.max_model_len = 4096;
  rules.token_budget = 512;
  rules.ratios = {4};
  // A decode before them is not gathered. 60 tokens before are all in the window of the next.
  const BatchPlan plan = batch_plan(batch({400, 60, 1588}, {1, 300, 200}), rules);
  ASSERT_EQ(plan.chunks.size(), 1u);
  ASSERT_EQ(plan.chunks[0].chunks.size(), 1u);
  const PrefillChunk& chunk = plan.chunks[0].chunks[0];
  EXPECT_EQ(chunk.begin, 1);
  EXPECT_EQ(chunk.end, 3);
  EXPECT_EQ(chunk.compressed, (1588 + 200) / 4);
  EXPECT_EQ(chunk.gathered, 300 + 60);
  EXPECT_EQ(chunk.width(), 447 + 360);
  // One alone is a chunk, however wide.
  rules.token_budget = 1;
  rules.max_model_len = 8;
  const BatchPlan wide = batch_plan(batch({0, 0}, {900, 900}), rules);
  EXPECT_EQ(wide.chunks[0].chunks.size(), 2u);
  EXPECT_TRUE(batch_plan(batch({400}, {1}), rules).chunks.empty());
}

TEST(BatchPlan, GraphsArePaddedAndPrefillHasNone) {
  const Numbers tokens = {1, 2, 3, 4, 5, 8, 9, 16, 17, 505, 512};
  const Numbers padded = {1, 2, 4, 4, 8, 8, 16, 16, 24, 512, 512};
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(graph_tokens(tokens[i]), padded[i]);
    const auto n = static_cast<std::size_t>(tokens[i]);
    const BatchPlan plan = batch_plan(batch(Numbers(n, 40), Numbers(n, 1), true), {});
    EXPECT_EQ(plan.graph, padded[i]) << plan.why_none;
    EXPECT_EQ(plan.padding(), padded[i] - tokens[i]);
    EXPECT_EQ(plan.why_none, "");
  }
  const BatchPlan many = batch_plan(batch(Numbers(513, 40), Numbers(513, 1), true), {});
  EXPECT_EQ(many.graph, 0);
  EXPECT_NE(many.why_none.find("513 tokens"), std::string::npos) << many.why_none;
  // A token in the middle of a prompt is not sampled from, also where it is the only one.
  const BatchPlan prompt = batch_plan(batch({40}, {1}), {});
  EXPECT_EQ(prompt.decodes, 1);
  EXPECT_EQ(prompt.graph, 0);
  EXPECT_NE(prompt.why_none.find("1 of 1 tokens"), std::string::npos) << prompt.why_none;
  StepMetadata mixed = batch({40, 0}, {1, 3});
  mixed.sample_rows = {0, 3};
  EXPECT_NE(batch_plan(mixed, {}).why_none.find("2 of 4 tokens"), std::string::npos);
}

// Tokens of prefills get their chunk and their place in it; the first ratio that compresses
// decides.
TEST(BatchPlan, TokensKnowTheirPartOfAWorkspace) {
  StepMetadata step = batch({0, 70, 0}, {3, 1, 2});
  step.own.push_back({.name = "parts", .kind = StepTensor::Kind::kParts, .columns = 2});
  BatchRules rules{.max_model_len = 1000, .token_budget = 64, .ratios = {0, 4, 128}};
  plan_lists(step, 0);
  plan_parts(step, rules);
  EXPECT_EQ(step.own[0].numbers, (std::vector<std::int32_t>{0, 0, 0, 0, 0, 0, -1, -1, 0, 1, 0, 1}));
  // No room for two: each is a chunk.
  rules.window = 1;
  rules.max_model_len = 0;
  rules.token_budget = 0;
  plan_lists(step, 0);
  plan_parts(step, rules);
  EXPECT_EQ(step.own[0].numbers, (std::vector<std::int32_t>{0, 0, 0, 0, 0, 0, -1, -1, 1, 0, 1, 0}));
  // A step of decodes has none.
  rules.decode_threshold = 3;
  plan_lists(step, 0);
  plan_parts(step, rules);
  EXPECT_EQ(step.own[0].numbers, std::vector<std::int32_t>(12, -1));
  EXPECT_EQ(step.own[0].tensor(6, 0).shape[1], 2);
}

}  // namespace batch_plan_test
}  // namespace attnscope
