// Scenarios of free queue, prefix map and pool.
#include <gtest/gtest.h>

#include "tests/unit/engine/blocks_bench.h"

namespace attnscope::blocks_test {
namespace blocks_catalogue_pool_test {

TEST(BlocksCatalogue, T1_free_kv_cache_block_queue_operations) {
  FreeQueue q(5);
  EXPECT_EQ(q.pop_front(), 0);
  EXPECT_EQ(q.size(), 4);
  q.remove(2);
  EXPECT_EQ(q.next(1), 3);
  EXPECT_EQ(q.prev(3), 1);
  EXPECT_EQ(q.size(), 3);
  q.append(2);
  EXPECT_EQ(q.back(), 2);
  EXPECT_EQ(q.prev(2), 4);
  for (int i = 0; i < 4; ++i) q.pop_front();
  EXPECT_EQ(q.size(), 0);
  EXPECT_EQ(q.front(), q.sentinel());
  EXPECT_EQ(q.back(), q.sentinel());
  EXPECT_TRUE(q.consistent());
}

TEST(BlocksCatalogue, T2_free_kv_cache_block_queue_append_n) {
  FreeQueue q(6, 6);
  q.append(Ids{});
  EXPECT_EQ(q.size(), 0);
  q.append(Ids{0});
  q.append(Ids{4, 5});
  EXPECT_EQ(q.ids(), (Ids{0, 4, 5}));
  q.append(Ids{1, 2, 3});
  EXPECT_EQ(q.ids(), (Ids{0, 4, 5, 1, 2, 3}));
  EXPECT_TRUE(q.consistent());
}

TEST(BlocksCatalogue, T3_free_kv_cache_block_queue_popleft_n) {
  BlockPool pool(7, false, FreeOrder::kAppend);
  Ids all;
  ASSERT_TRUE(pool.get(6, all));
  pool.release(Ids{2, 4, 6, 5, 1, 3});  // as 1,3,5,4,0,2, ids one higher: 0 is the null block
  Ids got;
  ASSERT_TRUE(pool.get(0, got));
  EXPECT_TRUE(got.empty());
  ASSERT_TRUE(pool.get(1, got));
  ASSERT_TRUE(pool.get(2, got));
  ASSERT_TRUE(pool.get(3, got));
  EXPECT_EQ(got, (Ids{2, 4, 6, 5, 1, 3}));
  for (const std::int32_t b : got) EXPECT_FALSE(pool.queue().contains(b));
}

TEST(BlocksCatalogue, T4_free_kv_cache_block_queue_get_all_free_blocks) {
  FreeQueue q(5);
  EXPECT_EQ(q.ids(), range(0, 4));
  q.pop_front();
  EXPECT_EQ(q.ids(), range(1, 4));
  q.remove(2);
  EXPECT_EQ(q.ids(), (Ids{1, 3, 4}));
  q.append(2);
  EXPECT_EQ(q.ids(), (Ids{1, 3, 4, 2}));
}

TEST(BlocksCatalogue, T5_free_kv_cache_block_queue_prepend_n) {
  FreeQueue q(6, 6);
  q.append(0);
  q.prepend(Ids{});
  EXPECT_EQ(q.ids(), (Ids{0}));
  q.prepend(Ids{4, 5});
  EXPECT_EQ(q.ids(), (Ids{4, 5, 0}));
  q.prepend(Ids{1, 2});
  EXPECT_EQ(q.ids(), (Ids{1, 2, 4, 5, 0}));
  Ids out;
  while (q.size() > 0) out.push_back(q.pop_front());
  EXPECT_EQ(out, (Ids{1, 2, 4, 5, 0}));
}

TEST(BlocksCatalogue, T6_kv_cache_block) {
  BlockPool pool(3, true, FreeOrder::kAppend);
  Ids b;
  ASSERT_TRUE(pool.get(1, b));
  EXPECT_FALSE(pool.hashed(b[0]));
  pool.cache(b[0], {1, 1}, 0);
  EXPECT_TRUE(pool.hashed(b[0]));
  EXPECT_EQ(pool.map().primary(b[0]).hash, (BlockHash{1, 1}));
  pool.evict(b);
  EXPECT_FALSE(pool.hashed(b[0]));
  EXPECT_EQ(pool.refs(b[0]), 1);
}

TEST(BlocksCatalogue, T7_block_lookup_cache_single_block_per_key) {
  PrefixMap map(12);
  const BlockHash k0{1, 0}, k1{2, 0}, k2{3, 0};
  map.set_primary(0, {k0, 0});
  map.set_primary(1, {k1, 0});
  EXPECT_EQ(map.find(k0, 0), 0);
  EXPECT_EQ(map.find(k1, 0), 1);
  EXPECT_EQ(map.find(k2, 0), -1);
  EXPECT_EQ(map.find(k0, 1), -1);  // of another group
  EXPECT_FALSE(map.has_key(10, {k0, 0}));
  map.erase_primary(0);
  EXPECT_EQ(map.find(k0, 0), -1);
  EXPECT_EQ(map.find(k1, 0), 1);
  map.erase_primary(1);
  EXPECT_EQ(map.num_keys(), 0);
}

TEST(BlocksCatalogue, T8_block_lookup_cache_multi_blocks_per_key) {
  PrefixMap map(12);
  const BlockHash k0{1, 0}, k1{2, 0};
  for (const auto& [key, first] : {std::pair(k0, 0), std::pair(k1, 10)}) {
    map.set_primary(first, {key, 0});
    map.set_primary(first + 1, {key, 0});
  }
  EXPECT_EQ(map.num_keys(), 2);
  for (const auto& [key, first] : {std::pair(k0, 0), std::pair(k1, 10)}) {
    EXPECT_EQ(map.blocks({key, 0}), (Ids{first, first + 1}));
    EXPECT_EQ(map.find(key, 0), first);
    map.erase_primary(first);
    EXPECT_EQ(map.find(key, 0), first + 1);
    map.erase_primary(first + 1);
    EXPECT_EQ(map.find(key, 0), -1);
  }
}

TEST(BlocksCatalogue, T9_maybe_evict_cached_block) {
  BlockPool pool(5, true, FreeOrder::kAppend);
  Ids b;
  ASSERT_TRUE(pool.get(4, b));
  const BlockHash h0{1, 0}, h1{2, 0}, h2{3, 0};
  pool.cache(1, h0, 0);
  pool.cache(2, h1, 0);
  pool.cache(3, h2, 0);
  pool.cache(4, h0, 0);
  const auto entries = [&] {
    return std::vector<Ids>{pool.map().blocks({h0, 0}), pool.map().blocks({h1, 0}),
                            pool.map().blocks({h2, 0})};
  };
  EXPECT_EQ(entries(), (std::vector<Ids>{{1, 4}, {2}, {3}}));
  pool.evict(Ids{2});
  EXPECT_EQ(entries(), (std::vector<Ids>{{1, 4}, {}, {3}}));
  pool.evict(Ids{1});
  EXPECT_EQ(entries(), (std::vector<Ids>{{4}, {}, {3}}));
  pool.evict(Ids{3});
  EXPECT_EQ(entries(), (std::vector<Ids>{{4}, {}, {}}));
  pool.evict(Ids{4});
  EXPECT_EQ(pool.num_keys(), 0);
}

TEST(BlocksPool, TooManyAskedForChangesNothing) {
  BlockPool pool(4, true, FreeOrder::kAppend);
  Ids b;
  EXPECT_FALSE(pool.get(4, b));
  EXPECT_TRUE(b.empty());
  EXPECT_EQ(pool.num_free(), 3);
  EXPECT_FALSE(pool.evict(Ids{1, 4}));
}

TEST(BlocksPool, TouchedTwiceIsHeldTwice) {
  BlockPool pool(4, true, FreeOrder::kSplitFront);
  pool.touch(Ids{2, 0, 2});
  EXPECT_EQ(pool.refs(2), 2);
  EXPECT_EQ(pool.queue().ids(), (Ids{1, 3}));
  pool.release(Ids{2});
  EXPECT_EQ(pool.num_free(), 2);
  pool.release(Ids{0, 2});
  EXPECT_EQ(pool.queue().ids(), (Ids{2, 1, 3}));  // without a key: to the front
}

TEST(BlocksPool, FreeOrders) {
  const auto queue = [](bool caching, FreeOrder order) {
    BlockPool pool(6, caching, order);
    Ids b;
    EXPECT_TRUE(pool.get(4, b));
    if (caching) {
      pool.cache(2, {1, 1}, 0);
      pool.cache(3, {2, 2}, 0);
    }
    pool.release(Ids{4, 3, 2, 1});
    return pool.queue().ids();
  };
  EXPECT_EQ(queue(true, FreeOrder::kAppend), (Ids{5, 4, 3, 2, 1}));
  EXPECT_EQ(queue(true, FreeOrder::kSplitFront), (Ids{4, 1, 5, 3, 2}));
  EXPECT_EQ(queue(true, FreeOrder::kLifoWhenUncached), (Ids{4, 1, 5, 3, 2}));
  EXPECT_EQ(queue(false, FreeOrder::kAppend), (Ids{5, 4, 3, 2, 1}));
  EXPECT_EQ(queue(false, FreeOrder::kSplitFront), (Ids{5, 4, 3, 2, 1}));
  EXPECT_EQ(queue(false, FreeOrder::kLifoWhenUncached), (Ids{4, 3, 2, 1, 5}));
}

}  // namespace blocks_catalogue_pool_test
}  // namespace attnscope::blocks_test
