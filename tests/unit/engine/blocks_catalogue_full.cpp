// Scenarios of one group that sees everything, blocks of 16 tokens unless said otherwise.
#include <gtest/gtest.h>

#include "tests/unit/engine/blocks_bench.h"

namespace attnscope::blocks_test {
namespace blocks_catalogue_full_test {

const Ids kCommon = tokens(48);  // three blocks
Ids common(std::int32_t more, std::int32_t first) { return kCommon + tokens(more, first); }

TEST(BlocksCatalogue, T10_prefill) {
  for (const CacheProfile p : kBoth) {
    const bool m = p == CacheProfile::kM;
    Bench b(options(p, {full(16)}, 11));
    KvRequest& r0 = b.add(common(7, 1000));
    EXPECT_EQ(r0.chain.size(), 3);
    Got got = b.admit(r0);
    EXPECT_EQ(got.hit, 0);
    EXPECT_EQ(b.table(r0), range(1, 4));
    for (std::int32_t id = 1; id <= 4; ++id) {
      EXPECT_EQ(b.kv.pool().refs(id), 1);
      EXPECT_EQ(b.kv.pool().hashed(id), id < 4);
    }
    KvRequest& r1 = b.add(common(5, 2000));
    got = b.admit(r1);
    EXPECT_EQ(got.hit, 48);
    EXPECT_EQ(got.hits[0], range(1, 3));
    EXPECT_EQ(got.fresh[0], Ids{5});
    for (std::int32_t id = 1; id <= 3; ++id) EXPECT_EQ(b.kv.pool().refs(id), 2);
    EXPECT_EQ(b.num_free(), 5);
    b.free(r0);
    b.free(r1);
    EXPECT_EQ(b.num_free(), 10);
    EXPECT_EQ(b.queue(),
              m ? (Ids{6, 7, 8, 9, 10, 4, 5, 3, 2, 1}) : (Ids{5, 4, 6, 7, 8, 9, 10, 3, 2, 1}));
    KvRequest& r2 = b.add(common(6, 3000));
    got = b.admit(r2);
    EXPECT_EQ(got.hit, 48);
    EXPECT_EQ(got.fresh[0], Ids{m ? 6 : 5});
    EXPECT_EQ(b.num_free(), 6);
    b.free(r2);
    KvRequest& r3 = b.add(Ids(160, 99));
    got = b.admit(r3);
    EXPECT_EQ(got.hit, 0);
    EXPECT_EQ(b.table(r3),
              m ? (Ids{7, 8, 9, 10, 4, 5, 6, 3, 2, 1}) : (Ids{5, 4, 6, 7, 8, 9, 10, 3, 2, 1}));
    EXPECT_EQ(b.num_free(), 0);
    EXPECT_EQ(b.kv.pool().queue().front(), b.kv.pool().queue().sentinel());
  }
}

// Requests of T10: the run of blocks that all tables begin with, by who holds a table.
TEST(BlocksCatalogue, CommonPrefixIsWhatAllTablesBeginWith) {
  for (const CacheProfile p : kBoth) {
    Bench b(options(p, {full(16)}, 21));
    KvRequest& r0 = b.add(common(7, 1000));
    EXPECT_EQ(b.kv.common_prefix(r0.slot, 0), 0) << "nobody holds a block";
    b.admit(r0);
    EXPECT_EQ(b.kv.common_prefix(r0.slot, 0), 4) << "alone it shares all with itself";
    KvRequest& r1 = b.add(common(5, 2000));
    b.admit(r1);
    EXPECT_EQ(b.kv.common_prefix(r0.slot, 0), 3);
    EXPECT_EQ(b.kv.common_prefix(r1.slot, 0), 3) << "whoever is asked";
    // A third that found two of the three.
    KvRequest& r2 = b.add(tokens(32) + tokens(20, 3000));
    EXPECT_EQ(b.admit(r2).hit, 32);
    EXPECT_EQ(b.kv.common_prefix(r0.slot, 0), 2);
    // One with other tokens holds a table as well, also when it computes nothing now.
    KvRequest& r3 = b.add(tokens(20, 4000));
    b.admit(r3);
    EXPECT_EQ(b.kv.common_prefix(r0.slot, 0), 0);
    b.free(r3);
    EXPECT_EQ(b.kv.common_prefix(r0.slot, 0), 2);
    b.free(r2);
    EXPECT_EQ(b.kv.common_prefix(r0.slot, 0), 3);
    b.free(r0);
    EXPECT_EQ(b.kv.common_prefix(r1.slot, 0), 4);
  }
}

TEST(BlocksCatalogue, CommonPrefixNeedsTheSameBlocksNotTheSameTokens) {
  for (const CacheProfile p : kBoth) {
    Bench b(options(p, {full(16)}, 21));
    KvRequest& r0 = b.add(common(7, 1000));
    b.admit(r0);
    KvRequest twice;
    twice.tokens = common(7, 1000);
    twice.skip_lookup = true;  // equal content in blocks of its own
    b.admit(b.add(twice));
    EXPECT_EQ(b.kv.common_prefix(r0.slot, 0), 0);
    KvOptions off = options(p, {full(16)}, 21);
    off.caching = false;
    Bench without(off);
    KvRequest& alone = without.add(common(7, 1000));
    without.admit(alone);
    EXPECT_EQ(without.kv.common_prefix(alone.slot, 0), 0) << "nothing is ever shared";
  }
}

TEST(BlocksCatalogue, WindowsHaveNoCommonPrefix) {
  for (const CacheProfile p : kBoth) {
    Bench b(options(p, {full(16), swa(16, 64), chunked(16, 64)}, 61));
    KvRequest& r0 = b.add(common(7, 1000));
    b.admit(r0);
    KvRequest& r1 = b.add(common(5, 2000));
    b.admit(r1);
    EXPECT_EQ(b.table(r0, 1)[0], b.table(r1, 1)[0]) << "the same block all the same";
    EXPECT_EQ(b.kv.common_prefix(r0.slot, 0), 3);
    EXPECT_EQ(b.kv.common_prefix(r0.slot, 1), 0);
    EXPECT_EQ(b.kv.common_prefix(r0.slot, 2), 0);
  }
}

TEST(BlocksCatalogue, T11_prefill_plp) {
  for (const CacheProfile p : kBoth) {
    Bench b(options(p, {full(16)}, 11));
    KvRequest wants_logprobs;
    wants_logprobs.tokens = common(7, 1000);
    wants_logprobs.skip_lookup = true;
    KvRequest& r0 = b.add(wants_logprobs);
    b.admit(r0);
    KvRequest& r1 = b.add(common(5, 2000));
    EXPECT_EQ(b.admit(r1).hit, 48);
    b.free(r0);
    b.free(r1);
    wants_logprobs.tokens = common(6, 3000);
    KvRequest& r2 = b.add(wants_logprobs);
    const Got got = b.admit(r2);
    EXPECT_EQ(got.hit, 0);
    EXPECT_EQ(b.table(r2), p == CacheProfile::kM ? (Ids{6, 7, 8, 9}) : (Ids{5, 4, 6, 7}));
    for (std::size_t i = 0; i < 3; ++i) {
      const PrefixKey key{r2.chain[static_cast<std::int64_t>(i)], 0};
      EXPECT_EQ(b.kv.pool().map().blocks(key).size(), 2u);  // the first request's block too
      EXPECT_EQ(b.kv.pool().refs(b.table(r2)[i]), 1);
    }
  }
}

TEST(BlocksCatalogue, T12_decode) {
  for (const CacheProfile p : kBoth) {
    Bench b(options(p, {full(16)}, 11));
    KvRequest& r = b.add(common(7, 1000));
    b.admit(r);
    EXPECT_EQ(b.table(r), range(1, 4));
    b.append(r, tokens(4, 2000));
    EXPECT_TRUE(b.step(r, 4).fresh[0].empty());
    EXPECT_FALSE(b.kv.pool().hashed(4));
    b.append(r, tokens(19, 3000));
    EXPECT_EQ(b.step(r, 19).fresh[0], Ids{5});
    EXPECT_TRUE(b.kv.pool().hashed(4));
    EXPECT_FALSE(b.kv.pool().hashed(5));
  }
}

TEST(BlocksCatalogue, T13_evict) {
  for (const CacheProfile p : kBoth) {
    const bool m = p == CacheProfile::kM;
    Bench b(options(p, {full(16)}, 11));
    KvRequest& r0 = b.add(tokens(87));
    EXPECT_EQ(b.admit(r0).fresh[0].size(), 6u);
    KvRequest& r1 = b.add(tokens(48, 87));
    EXPECT_EQ(b.admit(r1).fresh[0].size(), 3u);
    EXPECT_EQ(b.num_free(), 1);
    b.free(r0);
    b.free(r1);
    EXPECT_EQ(b.queue(),
              m ? (Ids{10, 6, 5, 4, 3, 2, 1, 9, 8, 7}) : (Ids{6, 10, 5, 4, 3, 2, 1, 9, 8, 7}));
    KvRequest& r2 = b.add(tokens(35));
    const Got got = b.admit(r2);
    EXPECT_EQ(got.hits[0], (Ids{1, 2}));
    EXPECT_EQ(got.fresh[0], Ids{m ? 10 : 6});
    EXPECT_EQ(b.num_free(), 7);
  }
}

TEST(BlocksCatalogue, T14_hash_block_correct_reuse) {
  Bench b(options(CacheProfile::kM, {full(16)}, 2));
  KvRequest& r0 = b.add(tokens(16));
  b.admit(r0);
  EXPECT_TRUE(b.kv.pool().hashed(1));
  b.free(r0);
  KvRequest& r1 = b.add(tokens(15, 500));
  EXPECT_EQ(b.admit(r1).fresh[0], Ids{1});
  EXPECT_FALSE(b.kv.pool().hashed(1));
  EXPECT_EQ(b.keys(), 0);
}

TEST(BlocksCatalogue, T15_computed_blocks_not_evicted) {
  for (const CacheProfile p : kBoth) {
    Bench b(options(p, {full(16)}, 3));
    KvRequest& r0 = b.add(tokens(16));
    b.admit(r0);
    KvRequest& r1 = b.add(tokens(16, 16));
    EXPECT_EQ(b.admit(r1).fresh[0], Ids{2});
    b.free(r0);
    b.free(r1);
    KvRequest& r2 = b.add(tokens(32));
    const Got got = b.admit(r2);
    EXPECT_EQ(got.hits[0], Ids{1});
    EXPECT_EQ(got.fresh[0], Ids{2});
  }
}

TEST(BlocksCatalogue, T16_basic_prefix_caching_disabled) {
  KvOptions o = options(CacheProfile::kM, {full(4)}, 5);
  o.caching = false;
  Bench b(o);
  KvRequest& r0 = b.add(tokens(10));
  EXPECT_EQ(b.admit(r0).fresh[0].size(), 3u);
  b.free(r0);
  KvRequest& r1 = b.add(tokens(16));
  const Got got = b.admit(r1);
  EXPECT_EQ(got.hit, 0);
  EXPECT_EQ(got.fresh[0].size(), 4u);
  EXPECT_FALSE(b.admit(b.add(tokens(4))).ok);
}

TEST(BlocksCatalogue, T17_cache_blocks) {
  Bench b(options(CacheProfile::kM, {full(4)}, 8));
  KvRequest& r = b.add(tokens(14));
  b.admit(r, 8);
  EXPECT_EQ(b.keys(), 2);
  b.step(r, 6);
  EXPECT_EQ(b.keys(), 3);
}

TEST(BlocksCatalogue, T18_prefill_not_enough_free_blocks_with_computed_blocks) {
  for (const CacheProfile p : kBoth) {
    Bench b(options(p, {full(16)}, 11));
    const Ids first = tokens(48), second = tokens(48, 100), third = tokens(48, 200);
    b.admit(b.add(first));
    KvRequest& r1 = b.add(first + second);
    EXPECT_EQ(b.admit(r1).hit, 48);
    const Ids blocks = b.table(r1);
    b.free(r1);
    const auto refs = [&] {
      Ids out;
      for (const std::int32_t id : blocks) out.push_back(b.kv.pool().refs(id));
      return out;
    };
    EXPECT_EQ(refs(), (Ids{1, 1, 1, 0, 0, 0}));
    b.admit(b.add(tokens(32, 900)));
    EXPECT_EQ(b.num_free(), 5);
    KvRequest& r3 = b.add(first + second + third);
    const Got got = b.admit(r3);
    EXPECT_EQ(got.hits[0], blocks);
    EXPECT_FALSE(got.ok);
    EXPECT_EQ(refs(), (Ids{1, 1, 1, 0, 0, 0}));
  }
}

TEST(BlocksCatalogue, T19_reset_prefix_cache) {
  Bench b(options(CacheProfile::kM, {full(16)}, 11));
  KvRequest& r0 = b.add(common(7, 1000));
  b.admit(r0);
  EXPECT_EQ(b.table(r0), range(1, 4));
  KvRequest& r1 = b.add(common(7, 2000));
  EXPECT_EQ(b.admit(r1).fresh[0], Ids{5});
  EXPECT_FALSE(b.kv.reset_prefix_cache());
  EXPECT_EQ(b.keys(), 3);
  b.free(r0);
  b.free(r1);
  EXPECT_TRUE(b.kv.reset_prefix_cache());
  EXPECT_EQ(b.keys(), 0);
  for (std::int32_t id = 0; id < 11; ++id) EXPECT_FALSE(b.kv.pool().hashed(id));
}

// Extras of the first `n` blocks of a request.
std::vector<std::vector<ExtraKey>> extras_of(const HashExtras& extras, std::int64_t n,
                                             std::int64_t size) {
  std::vector<std::vector<ExtraKey>> out;
  std::int64_t item = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    out.push_back(block_extras(extras, i * size, (i + 1) * size, item));
  }
  return out;
}

TEST(BlocksCatalogue, T21_mm_prefix_caching) {
  Bench b(options(CacheProfile::kM, {full(16)}, 11));
  KvRequest with_items;
  with_items.tokens = Ids(59, -2);
  with_items.extras.media = {{"aaa", 11, 10}, {"bbb", 30, 18}, {"ccc", 48, 7}};
  using Extras = std::vector<std::vector<ExtraKey>>;
  EXPECT_EQ(extras_of(with_items.extras, 4, 16),
            (Extras{{{"aaa", 11}}, {{"aaa", -5}, {"bbb", 14}}, {{"bbb", -2}}, {{"ccc", 0}}}));
  KvRequest& r0 = b.add(with_items);
  b.admit(r0);
  EXPECT_EQ(b.table(r0), range(1, 4));
  b.append(r0, tokens(5, 700));
  b.step(r0, 5);
  EXPECT_TRUE(b.kv.pool().hashed(4));
  KvRequest other = with_items;
  other.tokens = Ids(48, -2) + tokens(20, 300);
  other.extras.media[2] = {"ddd", 48, 7};
  EXPECT_EQ(b.admit(b.add(other)).hit, 48);
  // The items count, not only the tokens that stand for them.
  KvRequest changed = with_items;
  changed.extras.media[1].identifier = "eee";
  EXPECT_EQ(b.admit(b.add(changed)).hit, 16);
}

TEST(BlocksCatalogue, T22_cache_key_salting) {
  Bench b(options(CacheProfile::kM, {full(16)}, 11));
  KvRequest salted;
  salted.tokens = common(11, 1000);
  salted.extras.salt = "salt1";
  using Extras = std::vector<std::vector<ExtraKey>>;
  EXPECT_EQ(extras_of(salted.extras, 3, 16), (Extras{{{"salt1", {}}}, {}, {}}));
  b.admit(b.add(salted));
  KvRequest same = salted;
  same.tokens = common(7, 2000);
  EXPECT_EQ(b.admit(b.add(same)).hit, 48);
  KvRequest other = salted;
  other.extras.salt = "salt2";
  EXPECT_EQ(b.admit(b.add(other)).hit, 0);
}

TEST(BlocksCatalogue, T23_eagle) {
  for (const CacheProfile p : kBoth) {
    for (const auto& [length, hit] : {std::pair(48, 16), std::pair(37, 16)}) {
      Bench b(options(p, {flagged(full(16))}, 10));
      KvRequest& r = b.add(tokens(length));
      b.admit(r);
      EXPECT_EQ(b.hit_of(tokens(length)), hit) << length;
    }
    Bench b(options(p, {flagged(swa(16, 16))}, 10));
    KvRequest& r = b.add(tokens(48));
    b.admit(r);
    EXPECT_EQ(b.hit_of(tokens(48)), 16);
    b.forget(r, 0, 0);
    EXPECT_EQ(b.hit_of(tokens(48)), 0);
  }
}

TEST(BlocksCatalogue, T24_allocate_with_lookahead) {
  for (const auto& [lookahead, blocks] : {std::pair(2, 2u), std::pair(4, 2u)}) {
    Bench b(options(CacheProfile::kM, {full(4)}, 10));
    b.audit.lookahead = lookahead;
    KvRequest& r = b.add(tokens(3));
    EXPECT_EQ(b.admit(r, 3, false, lookahead).fresh[0].size(), blocks);
  }
}

TEST(BlocksCatalogue, T25_cache_blocks_multi_group) {
  BlockPool pool(8, true, FreeOrder::kAppend);
  Ids b;
  ASSERT_TRUE(pool.get(5, b));
  HashChain chain;
  chain.extend(tokens(14), 4, {});
  pool.cache(1, chain[0], 0);
  pool.cache(2, chain[1], 0);
  for (std::int32_t i = 0; i < 3; ++i) pool.cache(3 + i, chain[i], 1);
  EXPECT_EQ(pool.num_keys(), 5);
  for (std::int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(pool.find(chain[i], 0) >= 0, i < 2);
    EXPECT_TRUE(pool.find(chain[i], 1) >= 0);
  }
}

}  // namespace blocks_catalogue_full_test
}  // namespace attnscope::blocks_test
