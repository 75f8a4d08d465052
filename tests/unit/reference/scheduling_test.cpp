#include "tests/unit/reference/lane_test.h"

namespace attnscope::reference {
namespace scheduling_test {

// The five groups of a model with all layer types: MLA, SWA twice, C4 state, C128 state.
const Int32s kGroups = {256, 0, 64, 128, 64, 128, 4, 8, 8, 128};

struct Schedule {
  Schedule(Int32s tokens, Int32s before, Int32s runs)
      : num_tokens(std::move(tokens)),
        num_before(std::move(before)),
        running(std::move(runs)),
        joins(num_tokens.size(), 0),
        lost_to(num_tokens.size(), -1),
        matching(num_tokens.size(), 0),
        num_computed(num_tokens.size(), -7),
        num_scheduled_tokens(num_tokens.size(), -7),
        p(new_params<as_schedule_params>()) {
    const auto r = static_cast<std::int64_t>(num_tokens.size());
    p.groups = over(groups, {static_cast<std::int64_t>(groups.size() / 2), 2});
    p.num_tokens = over(num_tokens, {r});
    p.num_before = over(num_before, {r});
    p.running = over(running, {r});
    p.joins = over(joins, {r});
    p.lost_to = over(lost_to, {r});
    p.matching = over(matching, {r});
    p.num_computed = over(num_computed, {r});
    p.num_scheduled_tokens = over(num_scheduled_tokens, {r});
    p.token_budget = 512;
  }
  Int32s groups = kGroups;
  Int32s num_tokens, num_before, running, joins, lost_to, matching, num_computed,
      num_scheduled_tokens;
  as_schedule_params p;
};

TEST(Schedule, RunningFirstThenNewcomersUnderTheBudget) {
  Schedule s({900, 31, 2000, 40}, {100, 30, 0, 0}, {1, 1, 0, 0});
  s.joins[2] = 1;
  s.p.token_budget = 1000;
  run(exact_lane(), AS_OP_SCHEDULE, s.p);
  EXPECT_EQ(s.num_scheduled_tokens, (Int32s{800, 1, 199, 0}));
  EXPECT_EQ(s.num_computed, (Int32s{100, 30, 0, 0}));
}

// One limit for each request of the step, whether it runs or comes.
TEST(Schedule, ChunksAreAsLongAsTheStepAllows) {
  Schedule s({900, 31, 2000, 40}, {100, 30, 0, 0}, {1, 1, 0, 0});
  s.joins[2] = 1;
  s.joins[3] = 1;
  s.p.token_budget = 1000;
  s.p.longest_chunk = 300;
  run(exact_lane(), AS_OP_SCHEDULE, s.p);
  EXPECT_EQ(s.num_scheduled_tokens, (Int32s{300, 1, 300, 40}));
  s.p.token_budget = 320;
  run(sim_lane(), AS_OP_SCHEDULE, s.p);
  EXPECT_EQ(s.num_scheduled_tokens, (Int32s{300, 1, 19, 0}));
}

// Blocks of 256, 64, 64, 4 and 8 tokens: hits end at multiples of 256, and the last token is
// always computed.
TEST(Schedule, ANewcomerStartsBehindWhatItFound) {
  for (const auto& [matching, start] : std::vector<std::pair<int, int>>{
           {0, 0}, {255, 0}, {256, 256}, {511, 256}, {512, 256}, {300, 256}}) {
    Schedule s({512}, {0}, {0});
    s.joins[0] = 1;
    s.matching[0] = matching;
    run(sim_lane(), AS_OP_SCHEDULE, s.p);
    EXPECT_EQ(s.num_computed, (Int32s{start})) << matching;
    EXPECT_EQ(s.num_scheduled_tokens, (Int32s{512 - start})) << matching;
  }
  Schedule s({2000}, {0}, {0});
  s.joins[0] = 1;
  s.matching[0] = 1024;
  s.p.alignment = 1000;
  run(sim_lane(), AS_OP_SCHEDULE, s.p);
  EXPECT_EQ(s.num_computed, (Int32s{1000}));
}

// Rows of its own that come back end where they end, whatever the blocks are.
TEST(Schedule, WhoseRowsComeBackGoesOnBehindThem) {
  for (const int back : {1, 37, 300, 511}) {
    Schedule s({512}, {0}, {0});
    s.joins[0] = 2;
    s.matching[0] = back;
    run(exact_lane(), AS_OP_SCHEDULE, s.p);
    EXPECT_EQ(s.num_computed, (Int32s{back}));
    EXPECT_EQ(s.num_scheduled_tokens, (Int32s{512 - back}));
  }
}

TEST(Schedule, WhoLosesItsBlocksStartsAnewAndGivesItsTokensBack) {
  // Row 0 got 6 of 10 tokens, then lost its blocks to row 1, which had asked for all that was left.
  Schedule s({106, 130, 50, 300}, {100, 120, 49, 0}, {1, 1, 1, 0});
  s.p.token_budget = 10;
  s.lost_to[0] = 1;
  run(exact_lane(), AS_OP_SCHEDULE, s.p);
  EXPECT_EQ(s.num_scheduled_tokens, (Int32s{0, 4, 1, 0}));
  EXPECT_EQ(s.num_computed, (Int32s{0, 120, 49, 0}));
  // A later row loses its own before it is asked.
  s.lost_to = {-1, -1, 1, -1};
  run(exact_lane(), AS_OP_SCHEDULE, s.p);
  EXPECT_EQ(s.num_scheduled_tokens, (Int32s{6, 4, 0, 0}));
  EXPECT_EQ(s.num_computed, (Int32s{100, 120, 0, 0}));
  // To itself: nobody behind it is asked.
  s.lost_to = {-1, 1, -1, -1};
  run(exact_lane(), AS_OP_SCHEDULE, s.p);
  EXPECT_EQ(s.num_scheduled_tokens, (Int32s{6, 0, 0, 0}));
  EXPECT_EQ(s.num_computed, (Int32s{100, 0, 49, 0}));
}

struct BlockTables {
  BlockTables(Int32s groups_, Int32s computed, Int32s sched, Int32s blocks_, Int32s before,
              Int32s counts_before_)
      : groups(std::move(groups_)),
        num_computed(std::move(computed)),
        num_scheduled_tokens(std::move(sched)),
        joins(num_computed.size(), 0),
        blocks(std::move(blocks_)),
        tables_before(std::move(before)),
        counts_before(std::move(counts_before_)),
        tables(tables_before.size(), -7),
        counts(counts_before.size(), -7),
        p(new_params<as_block_tables_params>()) {
    const auto g = static_cast<std::int64_t>(groups.size() / 2);
    const auto r = static_cast<std::int64_t>(num_computed.size());
    const std::int64_t c = static_cast<std::int64_t>(tables.size()) / (g * r);
    p.groups = over(groups, {g, 2});
    p.num_computed = over(num_computed, {r});
    p.num_scheduled_tokens = over(num_scheduled_tokens, {r});
    p.joins = over(joins, {r});
    p.blocks = over(blocks, {g, r, c});
    p.tables_before = over(tables_before, {g, r, c});
    p.counts_before = over(counts_before, {g, r});
    p.tables = over(tables, {g, r, c});
    p.counts = over(counts, {g, r});
  }
  Int32s groups, num_computed, num_scheduled_tokens, joins, blocks, tables_before, counts_before;
  Int32s tables, counts;
  as_block_tables_params p;
};

TEST(BlockTables, NewEntriesJoinTheOldOnes) {
  BlockTables b({8, 0, 4, 4}, {5, 0}, {9, 3}, {1, 4, 0, 0, 6, 0, 0, 0, 2, 3, 5, 9, 7, 0, 0, 0},
                {1, 0, 0, 0, 0, 0, 0, 0, 2, 3, 0, 0, 0, 0, 0, 0}, {1, 0, 2, 0});
  run(exact_lane(), AS_OP_BLOCK_TABLES, b.p);
  EXPECT_EQ(b.tables, b.blocks);
  EXPECT_EQ(b.counts, (Int32s{2, 1, 4, 1}));
}

// Window 4 in blocks of 2, with 9 tokens computed: positions below 6 are out of sight. The manager
// has dropped these blocks; the table that ops read keeps them.
TEST(BlockTables, WhatTheManagerDroppedStaysInARowThatGoesOn) {
  BlockTables b({2, 4}, {9}, {1}, {0, 0, 0, 14, 15, 0}, {11, 12, 13, 14, 15, 0}, {5});
  run(sim_lane(), AS_OP_BLOCK_TABLES, b.p);
  EXPECT_EQ(b.tables, (Int32s{11, 12, 13, 14, 15, 0}));
  EXPECT_EQ(b.counts, (Int32s{5}));
}

TEST(BlockTables, ARowThatStartsAnewIsReplaced) {
  BlockTables b({2, 4}, {8}, {3}, {0, 0, 23, 24, 25, 26}, {11, 12, 13, 14, 15, 0}, {5});
  b.joins[0] = 1;
  run(sim_lane(), AS_OP_BLOCK_TABLES, b.p);
  EXPECT_EQ(b.tables, b.blocks);
  EXPECT_EQ(b.counts, (Int32s{6}));
}

TEST(BlockTables, RowsWithoutTokensKeepTheirs) {
  BlockTables b({2, 4}, {9}, {0}, {0, 0, 0, 0, 0, 0}, {11, 12, 13, 14, 15, 0}, {5});
  run(exact_lane(), AS_OP_BLOCK_TABLES, b.p);
  EXPECT_EQ(b.tables, b.tables_before);
  EXPECT_EQ(b.counts, b.counts_before);
}

// Position 6 and those behind it are in sight of position 9: entries 3 and 4.
TEST(BlockTables, AMissingOrExchangedBlockInSightIsMarked) {
  BlockTables missing({2, 4}, {9}, {1}, {0, 0, 0, 0, 15, 0}, {11, 12, 13, 14, 15, 0}, {5});
  run(exact_lane(), AS_OP_BLOCK_TABLES, missing.p);
  EXPECT_EQ(missing.tables, (Int32s{11, 12, 13, -1, 15, 0}));
  BlockTables exchanged({2, 4}, {9}, {3}, {0, 0, 0, 14, 16, 0}, {11, 12, 13, 14, 15, 0}, {5});
  run(exact_lane(), AS_OP_BLOCK_TABLES, exchanged.p);
  EXPECT_EQ(exchanged.tables, (Int32s{11, 12, 13, 14, -1, -1}));
}

TEST(BlockTables, RefusesWhatCannotBe) {
  BlockTables narrow({2, 4}, {0}, {9}, {5, 6, 7}, {0, 0, 0}, {0});
  expect_refused(AS_OP_BLOCK_TABLES, narrow.p, {"needs 5", "3 columns"});
}

}  // namespace scheduling_test
}  // namespace attnscope::reference
