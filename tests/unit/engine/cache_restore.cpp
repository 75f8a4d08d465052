// Putting block manager and scheduler back to an earlier state, as a kept session does.
#include <gtest/gtest.h>

#include "engine/cache/block_manager.h"
#include "engine/sched/scheduler.h"

namespace attnscope {
namespace {

constexpr std::int64_t kBlocks = 300;

CacheLayout layout() { return build_cache_layout(*preset("tiny")); }

std::vector<RequestTables> tables_of(const BlockManager& manager, const CacheLayout& l,
                                     const std::vector<std::int32_t>& requests) {
  std::vector<RequestTables> out;
  for (const std::int32_t request : requests) {
    RequestTables tables{request, {}};
    for (int g = 0; g < static_cast<int>(l.groups.size()); ++g) {
      const auto table = manager.table(request, g);
      tables.tables.emplace_back(table.begin(), table.end());
    }
    out.push_back(std::move(tables));
  }
  return out;
}

std::unique_ptr<BlockManager> used(const CacheLayout& l) {
  auto manager = make_block_manager(l, kBlocks);
  EXPECT_TRUE(manager->allocate(0, 0, 100));
  EXPECT_TRUE(manager->allocate(1, 0, 30));
  EXPECT_TRUE(manager->allocate(0, 100, 200));
  EXPECT_TRUE(manager->allocate(0, 200, 290));
  manager->free(1);
  EXPECT_TRUE(manager->allocate(2, 0, 17));
  return manager;
}

TEST(CacheRestore, GoesOnExactlyAsTheFirstOneDoes) {
  const CacheLayout l = layout();
  const auto first = used(l);
  const auto second = make_block_manager(l, kBlocks);
  ASSERT_TRUE(second->allocate(7, 0, 50));  // what was there before goes
  ASSERT_TRUE(second->restore(tables_of(*first, l, {0, 2}), first->free_list()));
  EXPECT_TRUE(second->table(7, 0).empty());
  const auto expect_equal = [&] {
    EXPECT_EQ(second->free_list(), first->free_list());
    EXPECT_EQ(second->num_free(), first->num_free());
    for (std::size_t id = 0; id < kBlocks; ++id) {
      EXPECT_EQ(second->owners()[id].request, first->owners()[id].request) << id;
      EXPECT_EQ(second->owners()[id].group, first->owners()[id].group) << id;
      EXPECT_EQ(second->owners()[id].index, first->owners()[id].index) << id;
    }
  };
  expect_equal();
  for (BlockManager* m : {first.get(), second.get()}) {
    ASSERT_TRUE(m->allocate(0, 290, 330));
    m->free(2);
    ASSERT_TRUE(m->allocate(3, 0, 40));
  }
  expect_equal();
}

TEST(CacheRestore, IdsThatDoNotPartitionThePoolChangeNothing) {
  const CacheLayout l = layout();
  const auto manager = used(l);
  const auto tables = tables_of(*manager, l, {0, 2});
  const auto free = manager->free_list();
  const auto refuses = [&](const std::vector<RequestTables>& t,
                           const std::vector<std::int32_t>& f) {
    const auto other = make_block_manager(l, kBlocks);
    EXPECT_TRUE(other->allocate(0, 0, 10));
    const auto before = other->free_list();
    EXPECT_FALSE(other->restore(t, f));
    EXPECT_EQ(other->free_list(), before);
    EXPECT_FALSE(other->table(0, 0).empty());
  };
  auto f = free;
  f.pop_back();
  refuses(tables, f);  // one is missing
  f = free;
  f.push_back(f.front());
  refuses(tables, f);  // one is there twice
  f = free;
  f.back() = 0;
  refuses(tables, f);  // the null block is nobody's
  f.back() = static_cast<std::int32_t>(kBlocks);
  refuses(tables, f);
  f.back() = -1;
  refuses(tables, f);
  auto t = tables;
  t[1].tables[0][0] = t[0].tables[0][0];
  refuses(t, free);  // two owners
  t = tables;
  t[0].tables[0][0] = free.front();
  refuses(t, free);  // owned and free
  t = tables;
  t[1].request = t[0].request;
  refuses(t, free);
  t = tables;
  t[1].request = -1;
  refuses(t, free);
  t = tables;
  t[0].tables.pop_back();
  refuses(t, free);
  const auto other = make_block_manager(l, kBlocks);
  EXPECT_TRUE(other->restore(tables, free));
}

TEST(SchedulerRestore, KeepsTheOrderOfRunningAndWaitingRequests) {
  const CacheLayout l = layout();
  Scheduler first(l, {16, 2}, kBlocks - 1);
  for (int i = 0; i < 4; ++i) {
    Request request;
    request.tokens.assign(static_cast<std::size_t>(10 + i), 'a');
    request.max_new_tokens = 1 + i;
    first.add(request);
  }
  Scheduler second = first;
  const auto step = [](Scheduler& s) {
    const auto live = s.live();
    const auto scheduled = s.schedule();
    s.advance(live, scheduled, std::vector<std::int32_t>(live.size(), 'b'));
    return scheduled;
  };
  for (int i = 0; i < 3; ++i) step(first);
  second.restore(first.requests(), first.live());
  EXPECT_EQ(second.live(), first.live());
  EXPECT_EQ(second.requests()[0].state, first.requests()[0].state);
  for (int i = 0; !first.done() && i < 50; ++i) {
    EXPECT_EQ(step(second), step(first));
    EXPECT_EQ(second.live(), first.live());
  }
  EXPECT_TRUE(first.done());
  EXPECT_TRUE(second.done());
}

}  // namespace
}  // namespace attnscope
