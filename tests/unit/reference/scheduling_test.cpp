#include "tests/unit/reference/lane_test.h"

namespace attnscope::reference {
namespace {

// The five groups of a model with all layer types: MLA, SWA twice, C4 state, C128 state.
const Int32s kGroups = {256, 0, 64, 128, 64, 128, 4, 8, 8, 128};

struct Schedule {
  Schedule(Int32s tokens, Int32s computed, Int32s max, Int32s runs)
      : num_tokens(std::move(tokens)),
        num_computed(std::move(computed)),
        max_len(std::move(max)),
        running(std::move(runs)),
        demand(num_tokens.size(), -1),
        scheduled(num_tokens.size(), -1),
        p(new_params<as_schedule_params>()) {
    const auto r = static_cast<std::int64_t>(num_tokens.size());
    p.groups = over(groups, {static_cast<std::int64_t>(groups.size() / 2), 2});
    p.num_tokens = over(num_tokens, {r});
    p.num_computed = over(num_computed, {r});
    p.max_len = over(max_len, {r});
    p.running = over(running, {r});
    p.demand = over(demand, {r});
    p.scheduled = over(scheduled, {r});
    p.token_budget = 512;
    p.max_requests = 8;
    p.usable_blocks = 10000;
  }
  Int32s groups = kGroups;
  Int32s num_tokens, num_computed, max_len, running, demand, scheduled;
  as_schedule_params p;
};

TEST(Schedule, DemandIsTheAdmissionCap) {
  Schedule s({2100, 10}, {0, 0}, {2120, 12}, {0, 0});
  run(exact_lane(), AS_OP_SCHEDULE, s.p);
  // 2120 tokens: MLA 9; SWA ceil(639/64)+1 = 11, twice; C4 ceil(519/4)+1 = 131; C128
  // ceil(639/8)+1 = 81. 12 tokens: 1, 1, 1, 3, 2.
  EXPECT_EQ(s.demand, (Int32s{9 + 11 + 11 + 131 + 81, 1 + 1 + 1 + 3 + 2}));
}

// Published figures of the cap for 8192 tokens in flight: 131 + 131 + 2051 + 1041.
TEST(Schedule, DemandOfALargePrefillChunk) {
  Schedule s({100000}, {0}, {100000}, {0});
  s.groups = {64, 128, 64, 128, 4, 8, 8, 128};
  s.p.groups = over(s.groups, {4, 2});
  s.p.token_budget = 8192;
  run(sim_lane(), AS_OP_SCHEDULE, s.p);
  EXPECT_EQ(s.demand[0], 3354);
}

TEST(Schedule, RunningFirstThenWaitingUnderTheBudget) {
  Schedule s({900, 31, 2000, 40}, {100, 30, 0, 0}, {1000, 50, 2100, 60}, {1, 1, 0, 0});
  s.p.token_budget = 1000;
  run(exact_lane(), AS_OP_SCHEDULE, s.p);
  EXPECT_EQ(s.scheduled, (Int32s{800, 1, 199, 0}));
}

TEST(Schedule, StopsAtTheFirstThatDoesNotFit) {
  Schedule s({30, 5000, 10}, {29, 0, 0}, {40, 6000, 12}, {1, 0, 0});
  run(exact_lane(), AS_OP_SCHEDULE, s.p);
  s.p.usable_blocks = s.demand[0] + s.demand[1] - 1;
  run(exact_lane(), AS_OP_SCHEDULE, s.p);
  EXPECT_EQ(s.scheduled, (Int32s{1, 0, 0}));  // the third would fit but must wait its turn
  s.p.usable_blocks += 1;
  run(exact_lane(), AS_OP_SCHEDULE, s.p);
  EXPECT_EQ(s.scheduled, (Int32s{1, 511, 0}));
}

TEST(Schedule, AtMostMaxRequestsRun) {
  Schedule s({3, 3, 3}, {0, 0, 0}, {9, 9, 9}, {0, 0, 0});
  s.p.max_requests = 2;
  run(sim_lane(), AS_OP_SCHEDULE, s.p);
  EXPECT_EQ(s.scheduled, (Int32s{3, 3, 0}));
}

struct BlockTables {
  BlockTables(Int32s groups_, Int32s computed, Int32s sched, Int32s before, Int32s counts_before_,
              Int32s free, std::int64_t left)
      : groups(std::move(groups_)),
        num_computed(std::move(computed)),
        scheduled(std::move(sched)),
        tables_before(std::move(before)),
        counts_before(std::move(counts_before_)),
        free_before(std::move(free)),
        tables(tables_before.size(), -7),
        counts(counts_before.size(), -7),
        free_after(static_cast<std::size_t>(left), -7),
        p(new_params<as_block_tables_params>()) {
    const auto g = static_cast<std::int64_t>(groups.size() / 2);
    const auto r = static_cast<std::int64_t>(num_computed.size());
    const std::int64_t c = static_cast<std::int64_t>(tables.size()) / (g * r);
    p.groups = over(groups, {g, 2});
    p.num_computed = over(num_computed, {r});
    p.scheduled = over(scheduled, {r});
    p.free_before = over(free_before, {static_cast<std::int64_t>(free_before.size())});
    p.tables_before = over(tables_before, {g, r, c});
    p.counts_before = over(counts_before, {g, r});
    p.tables = over(tables, {g, r, c});
    p.counts = over(counts, {g, r});
    p.free_after = over(free_after, {left});
  }
  Int32s groups, num_computed, scheduled, tables_before, counts_before, free_before;
  Int32s tables, counts, free_after;
  as_block_tables_params p;
};

TEST(BlockTables, GrowsGroupByGroupFromTheFrontOfTheFreeList) {
  BlockTables b({8, 0, 4, 4}, {0, 0}, {9, 3}, Int32s(2 * 2 * 4, 0), {0, 0, 0, 0},
                {1, 2, 3, 4, 5, 6, 7, 8, 9}, 2);
  run(exact_lane(), AS_OP_BLOCK_TABLES, b.p);
  EXPECT_EQ(b.tables, (Int32s{1, 2, 0, 0, 6, 0, 0, 0,  // full group: requests 0 and 1
                              3, 4, 5, 0, 7, 0, 0, 0}));
  EXPECT_EQ(b.counts, (Int32s{2, 1, 3, 1}));
  EXPECT_EQ(b.free_after, (Int32s{8, 9}));
}

// Window 4 in blocks of 2, with 9 tokens computed: positions below 6 are out, so blocks 0..2 go,
// newest first, to the tail; the full group keeps its own.
TEST(BlockTables, DropsWhatLeftTheWindowNewestFirst) {
  BlockTables b({4, 0, 2, 4}, {9}, {1}, {1, 2, 3, 0, 0, 0, 11, 12, 13, 14, 15, 0}, {3, 5}, {20, 21},
                5);
  run(sim_lane(), AS_OP_BLOCK_TABLES, b.p);
  EXPECT_EQ(b.tables, (Int32s{1, 2, 3, 0, 0, 0, 0, 0, 0, 14, 15, 0}));
  EXPECT_EQ(b.counts, (Int32s{3, 5}));
  EXPECT_EQ(b.free_after, (Int32s{20, 21, 13, 12, 11}));
}

// Dropping stops at the first null below; a freed id may be taken again in the same step.
TEST(BlockTables, StopsAtANullAndReusesFreedIds) {
  BlockTables b({2, 4}, {9}, {3}, {0, 0, 13, 14, 15, 0}, {5}, {}, 0);
  run(sim_lane(), AS_OP_BLOCK_TABLES, b.p);
  EXPECT_EQ(b.tables, (Int32s{0, 0, 0, 14, 15, 13}));
  EXPECT_EQ(b.counts, (Int32s{6}));
}

TEST(BlockTables, RequestsThatAreNotScheduledKeepTheirs) {
  BlockTables b({2, 4}, {9}, {0}, {11, 12, 13, 14, 15, 0}, {5}, {20}, 1);
  run(exact_lane(), AS_OP_BLOCK_TABLES, b.p);
  EXPECT_EQ(b.tables, b.tables_before);
  EXPECT_EQ(b.counts, b.counts_before);
  EXPECT_EQ(b.free_after, b.free_before);
}

TEST(BlockTables, RefusesWhatCannotBe) {
  BlockTables empty({2, 4}, {0}, {3}, {0, 0, 0}, {0}, {5}, 0);
  expect_refused(AS_OP_BLOCK_TABLES, empty.p, {"block_tables", "no free block", "request 0"});
  BlockTables narrow({2, 4}, {0}, {9}, {0, 0, 0}, {0}, {5, 6, 7, 8, 9}, 0);
  expect_refused(AS_OP_BLOCK_TABLES, narrow.p, {"needs 5", "3 columns"});
  BlockTables left({2, 4}, {0}, {1}, {0, 0, 0}, {0}, {5, 6}, 0);
  expect_refused(AS_OP_BLOCK_TABLES, left.p, {"free_after has 0", "1 blocks are left"});
}

}  // namespace
}  // namespace attnscope::reference
