// Hand-worked sequences of the block manager.
#include <gtest/gtest.h>

#include "engine/cache/block_manager.h"
#include "engine/cache/free_list.h"

namespace attnscope {
namespace {

using Ids = std::vector<std::int32_t>;

CacheLayout groups(std::initializer_list<std::pair<int, int>> block_and_window) {
  CacheLayout layout;
  for (const auto& [block, window] : block_and_window) {
    CacheGroup g;
    g.block_tokens = block;
    g.window = window;
    layout.groups.push_back(g);
  }
  return layout;
}

Ids run(std::int32_t first, std::int32_t last) {
  Ids ids;
  for (std::int32_t id = first; id <= last; ++id) ids.push_back(id);
  return ids;
}

Ids down(std::int32_t first, std::int32_t last) {
  Ids ids;
  for (std::int32_t id = first; id >= last; --id) ids.push_back(id);
  return ids;
}

Ids operator+(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Ids nulls(std::size_t n) { return Ids(n, 0); }

Ids table(const BlockManager& m, std::int32_t request, int group) {
  const auto t = m.table(request, group);
  return Ids(t.begin(), t.end());
}

TEST(FreeList, FifoWithRemovalFromTheMiddle) {
  FreeList list(6, 1);
  EXPECT_EQ(list.ids(), (Ids{1, 2, 3, 4, 5}));
  EXPECT_EQ(list.pop_front(), 1);
  list.remove(3);
  EXPECT_FALSE(list.contains(3));
  EXPECT_EQ(list.ids(), (Ids{2, 4, 5}));
  list.push_back(3);
  list.push_back(1);
  EXPECT_EQ(list.ids(), (Ids{2, 4, 5, 3, 1}));
  for (std::int32_t id : {2, 4, 5, 3, 1}) EXPECT_EQ(list.pop_front(), id);
  EXPECT_EQ(list.size(), 0);
  EXPECT_TRUE(list.ids().empty());
  list.push_back(4);
  EXPECT_EQ(list.ids(), (Ids{4}));
}

TEST(BlockManager, GrowsFromTheFrontAndFreesTailFirst) {
  auto m = make_block_manager(groups({{16, 0}}), 11);
  EXPECT_EQ(m->num_blocks(), 11);
  EXPECT_EQ(m->num_free(), 10);
  EXPECT_TRUE(m->allocate(0, 0, 55));
  EXPECT_EQ(table(*m, 0, 0), (Ids{1, 2, 3, 4}));
  EXPECT_TRUE(m->allocate(0, 55, 59));  // still inside block 4
  EXPECT_EQ(table(*m, 0, 0), (Ids{1, 2, 3, 4}));
  EXPECT_TRUE(m->allocate(1, 0, 17));
  EXPECT_EQ(table(*m, 1, 0), (Ids{5, 6}));
  EXPECT_TRUE(m->allocate(0, 59, 78));
  EXPECT_EQ(table(*m, 0, 0), (Ids{1, 2, 3, 4, 7}));
  m->free(0);
  EXPECT_EQ(m->free_list(), (Ids{8, 9, 10, 7, 4, 3, 2, 1}));
  EXPECT_TRUE(m->table(0, 0).empty());
  m->free(0);  // nothing left to free
  EXPECT_EQ(m->num_free(), 8);
}

TEST(BlockManager, OwnersFollowTheTables) {
  auto m = make_block_manager(groups({{16, 0}, {4, 8}}), 20);
  ASSERT_TRUE(m->allocate(3, 0, 20));
  EXPECT_EQ(table(*m, 3, 0), (Ids{1, 2}));
  EXPECT_EQ(table(*m, 3, 1), (Ids{3, 4, 5, 6, 7}));
  EXPECT_EQ(m->owners()[5].request, 3);
  EXPECT_EQ(m->owners()[5].group, 1);
  EXPECT_EQ(m->owners()[5].index, 2);
  EXPECT_EQ(m->owners()[0].request, -1);
  EXPECT_EQ(m->owners()[8].request, -1);
  ASSERT_TRUE(m->allocate(3, 20, 21));
  EXPECT_EQ(m->owners()[5].request, -1);  // left the window: 20 - 8 + 1 = 13, 13 / 4 = 3 blocks
}

// Window 4, blocks of 2: at n computed tokens, max(0, n - 3) / 2 blocks have left.
TEST(BlockManager, WindowDropIsDescending) {
  auto m = make_block_manager(groups({{2, 4}}), 40);
  ASSERT_TRUE(m->allocate(0, 0, 22));
  const Ids ids = run(1, 11);
  ASSERT_TRUE(m->allocate(0, 4, 22));
  EXPECT_EQ(table(*m, 0, 0), ids);
  ASSERT_TRUE(m->allocate(0, 5, 22));
  EXPECT_EQ(table(*m, 0, 0), nulls(1) + run(2, 11));
  ASSERT_TRUE(m->allocate(0, 6, 22));
  EXPECT_EQ(table(*m, 0, 0), nulls(1) + run(2, 11));
  ASSERT_TRUE(m->allocate(0, 7, 22));
  EXPECT_EQ(table(*m, 0, 0), nulls(2) + run(3, 11));
  ASSERT_TRUE(m->allocate(0, 11, 22));
  EXPECT_EQ(table(*m, 0, 0), nulls(4) + run(5, 11));
  EXPECT_EQ(m->free_list(), run(12, 39) + Ids({1, 2, 4, 3}));
}

TEST(BlockManager, FailedAllocateDropsButGrowsNothing) {
  auto m = make_block_manager(groups({{4, 0}, {4, 4}}), 9);  // 8 usable
  ASSERT_TRUE(m->allocate(0, 0, 12));                        // 3 + 3
  EXPECT_EQ(m->num_free(), 2);
  EXPECT_FALSE(m->allocate(0, 8, 40));  // 7 more in each group; one block left the window
  EXPECT_EQ(table(*m, 0, 0), (Ids{1, 2, 3}));
  EXPECT_EQ(table(*m, 0, 1), (Ids{0, 5, 6}));
  EXPECT_EQ(m->free_list(), (Ids{7, 8, 4}));
  EXPECT_FALSE(m->allocate(1, 0, 8));  // a request that got nothing is unknown
  EXPECT_TRUE(m->table(1, 0).empty());
  EXPECT_TRUE(m->allocate(0, 12, 16));
  EXPECT_EQ(table(*m, 0, 0), (Ids{1, 2, 3, 7}));
  EXPECT_EQ(table(*m, 0, 1), (Ids{0, 0, 6, 8}));
  EXPECT_EQ(m->free_list(), (Ids{4, 5}));
}

TEST(BlockManager, CloneIsIndependent) {
  auto m = make_block_manager(groups({{4, 0}}), 9);
  ASSERT_TRUE(m->allocate(0, 0, 8));
  const auto copy = m->clone();
  ASSERT_TRUE(m->allocate(0, 8, 16));
  m->free(0);
  EXPECT_EQ(table(*copy, 0, 0), (Ids{1, 2}));
  EXPECT_EQ(copy->free_list(), run(3, 8));
  EXPECT_EQ(copy->owners()[1].request, 0);
  ASSERT_TRUE(copy->allocate(0, 8, 12));
  EXPECT_EQ(table(*copy, 0, 0), (Ids{1, 2, 3}));
}

TEST(BlockManager, OutOfRangeGroupAndUnknownRequestAreEmpty) {
  auto m = make_block_manager(groups({{4, 0}}), 4);
  ASSERT_TRUE(m->allocate(0, 0, 4));
  EXPECT_TRUE(m->table(0, 1).empty());
  EXPECT_TRUE(m->table(0, -1).empty());
  EXPECT_TRUE(m->table(7, 0).empty());
}

// 1,300 tokens of prompt in chunks of 512 and six decode steps through the five groups of the full
// model: ids and counts as the serving engine hands them out (free blocks appended at the tail).
TEST(BlockManager, FiveGroupTrace) {
  auto m = make_block_manager(build_cache_layout(*preset("v4-flash")), 2001);
  const auto grown = [&](int g, std::size_t n) {
    const Ids t = table(*m, 0, g);
    return Ids(t.end() - static_cast<std::ptrdiff_t>(n), t.end());
  };
  ASSERT_TRUE(m->allocate(0, 0, 512));
  EXPECT_EQ(table(*m, 0, 0), run(1, 2));
  EXPECT_EQ(table(*m, 0, 1), run(3, 10));
  EXPECT_EQ(table(*m, 0, 2), run(11, 18));
  EXPECT_EQ(table(*m, 0, 3), run(19, 146));
  EXPECT_EQ(table(*m, 0, 4), run(147, 210));
  EXPECT_EQ(m->num_free(), 1790);

  ASSERT_TRUE(m->allocate(0, 512, 1024));
  EXPECT_EQ(table(*m, 0, 0), run(1, 2) + run(211, 212));
  EXPECT_EQ(table(*m, 0, 1), nulls(6) + Ids({9, 10}) + run(213, 220));
  EXPECT_EQ(table(*m, 0, 2), nulls(6) + Ids({17, 18}) + run(221, 228));
  EXPECT_EQ(table(*m, 0, 3), nulls(126) + Ids({145, 146}) + run(229, 356));
  EXPECT_EQ(table(*m, 0, 4), nulls(48) + run(195, 210) + run(357, 420));
  EXPECT_EQ(m->num_free(), 1766);

  ASSERT_TRUE(m->allocate(0, 1024, 1300));
  EXPECT_EQ(grown(0, 2), run(421, 422));
  EXPECT_EQ(table(*m, 0, 1), nulls(14) + Ids({219, 220}) + run(423, 427));
  EXPECT_EQ(table(*m, 0, 2), nulls(14) + Ids({227, 228}) + run(428, 432));
  EXPECT_EQ(table(*m, 0, 3), nulls(254) + Ids({355, 356}) + run(433, 501));
  EXPECT_EQ(table(*m, 0, 4), nulls(112) + run(405, 420) + run(502, 536));
  EXPECT_EQ(m->num_free(), 1858);

  const std::vector<std::int64_t> free_after = {1968, 1968, 1968, 1970, 1968, 1968};
  for (std::int64_t i = 0; i < 6; ++i) {
    ASSERT_TRUE(m->allocate(0, 1300 + i, 1301 + i));
    EXPECT_EQ(m->num_free(), free_after[static_cast<std::size_t>(i)]) << "position " << 1300 + i;
  }
  EXPECT_EQ(table(*m, 0, 1), nulls(18) + run(425, 427));
  EXPECT_EQ(table(*m, 0, 2), nulls(18) + run(430, 432));
  EXPECT_EQ(table(*m, 0, 3), nulls(324) + Ids({501, 537, 538}));
  EXPECT_EQ(table(*m, 0, 4), nulls(147) + run(521, 536) + Ids({539}));

  m->free(0);
  EXPECT_EQ(m->num_free(), 2000);
  const Ids list = m->free_list();
  const Ids tail = down(422, 421) + down(212, 211) + down(2, 1) + down(427, 425) + down(432, 430) +
                   Ids({538, 537, 501}) + Ids({539}) + down(536, 521);
  EXPECT_EQ(Ids(list.end() - static_cast<std::ptrdiff_t>(tail.size()), list.end()), tail);
  EXPECT_EQ(list.front(), 540);
}

}  // namespace
}  // namespace attnscope
