// The pool of rows of a layer: what hits, what misses, who leaves, and what a simulation counts.
#include "engine/offload/row_pool.h"

#include <gtest/gtest.h>

#include "engine/offload/simulate.h"

namespace attnscope {
namespace row_pool_test {

std::vector<HostRow> rows(std::initializer_list<std::int32_t> numbers, std::int32_t request = 0) {
  std::vector<HostRow> out;
  for (const std::int32_t n : numbers) out.push_back({request, n});
  return out;
}
std::vector<HostRow> of(const std::vector<RowMove>& moves) {
  std::vector<HostRow> out;
  for (const RowMove& m : moves) out.push_back(m.row);
  return out;
}
PoolStep step(RowPool& pool, std::initializer_list<std::int32_t> written,
              std::initializer_list<std::int32_t> selected) {
  auto done = pool.step(rows(written), rows(selected));
  EXPECT_TRUE(done) << done.error().text();
  return *done;
}

TEST(RowPool, MissesComeInAndHitAfterwards) {
  RowPool pool({.rows = 4});
  const PoolStep first = step(pool, {}, {7, 3});
  EXPECT_EQ(of(first.misses), rows({7, 3}));
  EXPECT_EQ(first.at, (std::vector<std::int32_t>{0, 1}));
  const PoolStep second = step(pool, {}, {3, 9, 3});
  EXPECT_EQ(of(second.hits), rows({3}));
  EXPECT_EQ(of(second.misses), rows({9}));
  EXPECT_EQ(second.at, (std::vector<std::int32_t>{1, 2, 1}));
  EXPECT_EQ(pool.resident(), 3);
}

TEST(RowPool, LruKeepsWhatIsUsedFifoDoesNot) {
  for (const PoolPolicy policy : {PoolPolicy::kLru, PoolPolicy::kFifo}) {
    RowPool pool({.rows = 3, .policy = policy});
    step(pool, {}, {1});
    step(pool, {}, {2});
    step(pool, {}, {3});
    step(pool, {}, {1});
    const PoolStep last = step(pool, {}, {4});
    EXPECT_EQ(of(last.evictions), rows({policy == PoolPolicy::kLru ? 2 : 1}))
        << pool_policy_name(policy);
    EXPECT_EQ(last.evictions.front().at, last.misses.front().at);
  }
}

TEST(RowPool, WhatTheStepNeedsStays) {
  RowPool pool({.rows = 2, .policy = PoolPolicy::kFifo});
  step(pool, {}, {1, 2});
  const PoolStep next = step(pool, {}, {3, 1});
  EXPECT_EQ(of(next.hits), rows({1}));
  EXPECT_EQ(of(next.evictions), rows({2}));
}

TEST(RowPool, NewRowsAreWrittenBackAndAreNoMisses) {
  RowPool pool({.rows = 4});
  const PoolStep done = step(pool, {5}, {5, 1});
  EXPECT_EQ(of(done.written), rows({5}));
  EXPECT_EQ(of(done.misses), rows({1}));
  EXPECT_TRUE(done.hits.empty());
  EXPECT_EQ(done.at.front(), done.written.front().at);
}

TEST(RowPool, TooSmallIsSaidAndChangesNothing) {
  RowPool pool({.rows = 2});
  step(pool, {}, {1, 2});
  const auto before = pool.by_age();
  const auto refused = pool.step(rows({3}), rows({1, 2}));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().text().find("a pool of 2 rows is too small for a step that needs 3"),
            std::string::npos)
      << refused.error().text();
  EXPECT_EQ(pool.by_age(), before);
}

TEST(RowPool, WarmRowsHitAndTheLastOnesStay) {
  RowPool pool({.rows = 3});
  pool.warm(rows({1, 2, 3, 4, 2}));
  EXPECT_FALSE(pool.holds({0, 1}));
  const PoolStep done = step(pool, {}, {2, 3, 4});
  EXPECT_EQ(of(done.hits), rows({2, 3, 4}));
}

TEST(RowPool, RequestsHaveRowsOfTheirOwnAndLeaveWithThem) {
  RowPool pool({.rows = 4});
  pool.warm(rows({1, 2}));
  pool.warm(rows({1}, 1));
  EXPECT_EQ(pool.resident(), 3);
  pool.drop({0, 0, 2});
  EXPECT_TRUE(pool.holds({0, 2}));
  pool.drop({0, 2, 1});
  EXPECT_FALSE(pool.holds({0, 1}));
  EXPECT_TRUE(pool.holds({1, 1}));
  EXPECT_EQ(of(step(pool, {}, {1}).misses), rows({1}));
}

// A new row has its place before anybody knows what is selected: the oldest one leaves for it.
TEST(RowPool, ANewRowMayPushOutWhatIsSelected) {
  RowPool pool({.rows = 3});
  step(pool, {}, {1});
  step(pool, {}, {2});
  step(pool, {}, {3});
  const PoolStep done = step(pool, {9}, {1});
  EXPECT_EQ(of(done.evictions), rows({1, 2}));
  EXPECT_EQ(of(done.misses), rows({1}));
  EXPECT_TRUE(done.hits.empty());
}

// Counted by hand: rows 0..3 selected, then 1..4, through a pool of four, cold.
TEST(SimulateOffload, CountsBytesAndOverlapOfASmallTrace) {
  SelectionTrace trace;
  trace.layers = {2};
  trace.context = trace.rows = 8;
  trace.requests = 1;
  trace.row_bytes = 100;
  trace.steps.push_back({0, 1, 7, {}, {{{}, {}, rows({0, 1, 2, 3}), {}}}});
  trace.steps.push_back({1, 1, 8, {}, {{{}, rows({4}), rows({1, 2, 3, 4}), {}}}});
  const auto result = simulate_offload(trace, {.ratio = 0.5, .warm = false});
  ASSERT_TRUE(result) << result.error().text();
  EXPECT_EQ(result->pool_rows, 4);
  EXPECT_EQ(result->total.misses, 4);
  EXPECT_EQ(result->total.hits, 3);
  EXPECT_EQ(result->total.evictions, 1);
  EXPECT_EQ(result->bytes_in, 400);
  EXPECT_EQ(result->bytes_back, 100);
  EXPECT_DOUBLE_EQ(*result->layers.front().overlap, 0.75);
  EXPECT_FALSE(result->us[static_cast<std::size_t>(Overlap::kDba)].has_value());
  EXPECT_FALSE(simulate_offload(trace, {.ratio = 0.4, .warm = false}));
  EXPECT_FALSE(simulate_offload(trace, {.ratio = 0}));
}

// A pool of four, cold: the first half's new row takes the place of one that the second would hit.
TEST(SimulateOffload, HalvesOfABatchSelectOneAfterTheOther) {
  SelectionTrace trace;
  trace.layers = {2};
  trace.context = trace.rows = 8;
  trace.requests = 2;
  trace.row_bytes = 100;
  trace.steps.push_back({0, 2, 7, {}, {{{}, {}, rows({0, 1, 2, 3}), {1, 1, 2, 2}}}});
  trace.steps.push_back({1, 2, 8, {}, {{{}, {}, rows({0, 5, 6}), {2, 1, 1}}}});
  const auto whole = simulate_offload(trace, {.ratio = 0.5, .warm = false});
  OffloadOptions options{.ratio = 0.5, .warm = false};
  options.attend.all = Overlap::kDba;
  const auto halves = simulate_offload(trace, options);
  ASSERT_TRUE(whole && halves);
  EXPECT_EQ(whole->total.hits, 1);
  EXPECT_EQ(whole->total.misses, 6);
  EXPECT_EQ(halves->total.hits, 0);
  EXPECT_EQ(halves->total.misses, 7);
}

TEST(GeneratedTrace, HasTheOverlapThatWasAskedForAndRepeats) {
  const GeneratorOptions options{
      .context = 1000, .batch = 2, .topk = 100, .steps = 9, .layers = 2, .overlap = 0.8};
  const auto trace = generated_trace(options), again = generated_trace(options);
  ASSERT_TRUE(trace && again);
  ASSERT_EQ(trace->steps.size(), 9u);
  for (std::size_t s = 0; s < 9; ++s) {
    for (std::size_t l = 0; l < 2; ++l) {
      EXPECT_EQ(trace->steps[s].layers[l].selected, again->steps[s].layers[l].selected);
      EXPECT_EQ(trace->steps[s].layers[l].selected.size(), 200u);
    }
  }
  const auto result = simulate_offload(*trace, {.ratio = 1, .warm = false});
  ASSERT_TRUE(result);
  // What is drawn anew may have been there before.
  EXPECT_GE(*result->layers.front().overlap, 0.8);
  EXPECT_LT(*result->layers.front().overlap, 0.86);
  EXPECT_FALSE(generated_trace({.context = 10, .topk = 11}));
  EXPECT_FALSE(generated_trace({.overlap = 1.5}));
}

// By hand, with round constants: i = 4, x = 10, p = 6, a = 8 of which 2 are of misses.
TEST(OverlapModel, FollowsItsFormulas) {
  const OverlapConstants constants{.host_to_device = 1.024,
                                   .device_to_host = 1e6,
                                   .transfer_us = 0,
                                   .indexer_us = 2,
                                   .attention_us = 8,
                                   .preattn_us = 6,
                                   .merge_us = 1,
                                   .split_us = 1};
  const LayerLoad load{.requests = 2,
                       .context_rows = 2048,
                       .selected = 1024,
                       .misses = 256,
                       .written = 0,
                       .row_bytes = 40};
  const auto times = layer_times(load, constants);
  EXPECT_DOUBLE_EQ(*times[0], 4 + 10 + 6 + 8);
  EXPECT_DOUBLE_EQ(*times[1], 4 + 10 + 8);
  EXPECT_DOUBLE_EQ(*times[2], 4 + 12 + 2 + 1);
  // Halves: moved at 7 and 12, first scored and computed at 11 + 4, the second done 4 later.
  EXPECT_DOUBLE_EQ(*times[3], 19);
}

}  // namespace row_pool_test
}  // namespace attnscope
