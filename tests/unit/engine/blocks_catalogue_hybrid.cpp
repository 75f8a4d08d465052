// Scenarios of several groups of different kinds.
#include <gtest/gtest.h>

#include <map>

#include "tests/unit/engine/blocks_bench.h"

namespace attnscope::blocks_test {
namespace blocks_catalogue_hybrid_test {

using Lists = std::vector<Ids>;

// Which (entry, group) keys to take away, and how many tokens of blocks are then hit.
struct Deletion {
  std::vector<std::pair<std::size_t, std::size_t>> keys;  // entry, group
  std::int64_t blocks;
};

TEST(BlocksCatalogue, T26_prefill_hybrid_model) {
  const std::vector<Deletion> deletions = {
      {{{0, 1}, {0, 2}}, 3}, {{{0, 0}}, 0}, {{{2, 0}, {2, 1}, {2, 2}}, 2}, {{{2, 0}}, 2},
      {{{2, 1}}, 2},         {{{2, 2}}, 2}, {{{2, 0}, {0, 1}, {0, 2}}, 0}};
  for (const CacheProfile p : kBoth) {
    for (const Deletion& deletion : deletions) {
      Bench b(options(p, {full(16), swa(16, 32), swa(16, 32)}, 21));
      KvRequest& r0 = b.add(tokens(48) + tokens(7, 1000));
      const Got first = b.admit(r0);
      EXPECT_EQ(first.fresh, (Lists{range(1, 4), range(5, 8), range(9, 12)}));
      for (std::size_t i = 0; i < 3; ++i) {
        const auto id = static_cast<std::int32_t>(i);
        EXPECT_EQ(b.pool_block(r0, 0, i), 1 + id);
        EXPECT_EQ(b.pool_block(r0, 1, i), 5 + id);
        EXPECT_EQ(b.pool_block(r0, 2, i), 9 + id);
      }
      const Ids prompt = tokens(48) + tokens(5, 2000);
      KvRequest& r1 = b.add(prompt);
      const Got got = b.admit(r1);
      EXPECT_EQ(got.hit, 48);
      EXPECT_EQ(got.hits, (Lists{range(1, 3), {0, 6, 7}, {0, 10, 11}}));
      EXPECT_EQ(got.fresh, (Lists{{13}, {14}, {15}}));
      for (const std::int32_t id : {1, 2, 3, 6, 7, 10, 11}) EXPECT_EQ(b.kv.pool().refs(id), 2);
      b.free(r0);
      b.free(r1);
      for (const auto& [entry, group] : deletion.keys) b.forget(r1, group, entry);
      for (const Ids& list : b.lookup(prompt)) {
        EXPECT_EQ(static_cast<std::int64_t>(list.size()), deletion.blocks);
      }
      EXPECT_EQ(b.last_hit, deletion.blocks * 16);
    }
  }
}

TEST(BlocksCatalogue, T27_prefill_hybrid_model_eagle) {
  const std::vector<Deletion> deletions = {
      {{{0, 1}, {0, 2}}, 5}, {{{0, 0}}, 0}, {{{5, 0}, {5, 1}, {5, 2}}, 4}, {{{5, 0}}, 4},
      {{{4, 1}}, 3},         {{{4, 2}}, 3}, {{{5, 0}, {0, 1}, {0, 2}}, 4}};
  for (const CacheProfile p : kBoth) {
    for (const Deletion& deletion : deletions) {
      Bench b(options(p, {flagged(full(16)), flagged(swa(16, 48)), flagged(swa(16, 48))}, 31));
      const Ids shared = tokens(96);
      KvRequest& r0 = b.add(shared + tokens(7, 1000));
      EXPECT_EQ(b.admit(r0).fresh, (Lists{range(1, 7), range(8, 14), range(15, 21)}));
      const Ids prompt = shared + tokens(5, 2000);
      KvRequest& r1 = b.add(prompt);
      const Got got = b.admit(r1);
      EXPECT_EQ(got.hits, (Lists{range(1, 5), {0, 0, 10, 11, 12}, {0, 0, 17, 18, 19}}));
      EXPECT_EQ(got.fresh, (Lists{{22, 23}, {24, 25}, {26, 27}}));
      b.free(r0);
      b.free(r1);
      for (const auto& [entry, group] : deletion.keys) {
        // Both requests have a block of entry 5.
        while (b.pool_block(r1, group, entry) >= 0) b.forget(r1, group, entry);
      }
      EXPECT_EQ(b.hit_of(prompt), deletion.blocks * 16);
    }
  }
}

TEST(BlocksCatalogue, T28_prefill_hybrid_model_combinations) {
  const GroupSpec f = full(16), narrow = swa(16, 32), wide = swa(16, 64);
  const std::vector<std::vector<GroupSpec>> layouts = {
      {f, narrow},       {f, wide},         {narrow, f},    {narrow, wide},      {f, narrow, wide},
      {narrow, f, wide}, {narrow, wide, f}, {f, f, narrow}, {f, narrow, f, wide}};
  for (const CacheProfile p : kBoth) {
    for (const auto& groups : layouts) {
      Bench b(options(p, groups, 41));
      b.admit(b.add(tokens(48) + tokens(7, 1000)));
      const Got got = b.admit(b.add(tokens(48) + tokens(5, 2000)));
      EXPECT_EQ(got.hit, 48);
      for (const Ids& list : got.hits) EXPECT_EQ(list.size(), 3u);
    }
  }
}

TEST(BlocksCatalogue, T29_prefill_hybrid_model_combinations_eagle) {
  for (const CacheProfile p : kBoth) {
    Bench b(options(p, {flagged(full(16)), flagged(swa(16, 32))}, 31));
    b.admit(b.add(tokens(64) + tokens(7, 1000)));
    const Got got = b.admit(b.add(tokens(64) + tokens(5, 2000)));
    EXPECT_EQ(got.hit, 48);
    for (const Ids& list : got.hits) EXPECT_EQ(list.size(), 3u);
  }
}

TEST(BlocksCatalogue, T31_different_block_size) {
  for (const CacheProfile p : kBoth) {
    Bench b(options(p, {full(32), swa(16, 32)}, 100));
    KvRequest& r = b.add(tokens(160));
    EXPECT_EQ(b.admit(r, 112).fresh, (Lists{range(1, 4), range(5, 11)}));
    for (const std::int32_t length : {113, 97}) {
      const Lists lists = b.lookup(tokens(length));
      EXPECT_EQ(b.last_hit, 96);
      EXPECT_EQ(lists[0].size(), 3u);
      EXPECT_EQ(lists[1].size(), 6u);
    }
    if (b.pool_block(r, 1, 6) >= 0) b.forget(r, 1, 6);
    b.forget(r, 1, 5);
    const Lists lists = b.lookup(tokens(113));
    EXPECT_EQ(b.last_hit, 64);
    EXPECT_EQ(lists[0].size(), 2u);
    EXPECT_EQ(lists[1].size(), 4u);
  }
}

TEST(BlocksCatalogue, T32_hybrid_cache_blocks_swa_tail_window_only) {
  for (const CacheProfile p : kBoth) {
    Bench b(options(p, {full(32), swa(8, 8)}, 40));
    KvRequest& r = b.add(tokens(64));
    b.admit(r);
    EXPECT_EQ(b.keyed(r, 1), (Ids{3, 7}));
  }
}

TEST(BlocksCatalogue, T33_hybrid_cache_blocks_clamped_to_lcm) {
  for (const CacheProfile p : kBoth) {
    Bench b(options(p, {full(32), swa(16, 32)}, 40));
    KvRequest& r = b.add(tokens(112));
    b.admit(r);
    EXPECT_EQ(b.keyed(r, 1), range(0, 5));
  }
}

KvOptions gated(CacheProfile p, std::int64_t blocks) {
  KvOptions o = options(p, {full(16), swa(16, 64)}, blocks);
  o.cap_tokens = 128;
  o.max_model_len = 1024;
  return o;
}

TEST(BlocksCatalogue, T34_can_fit_full_sequence_swa_cap_admits_long_prompt) {
  for (const CacheProfile p : kBoth) {
    Bench b(gated(p, 78));
    EXPECT_EQ(b.kv.cap(1), 13);
    KvRequest& r = b.add(tokens(512));
    EXPECT_EQ(b.kv.need(r, 512, 0, nullptr, true), 45);
    const Got got = b.admit(r, 16, true);
    EXPECT_TRUE(got.ok);
    EXPECT_EQ(got.fresh, (Lists{{1}, {2}}));
  }
}

TEST(BlocksCatalogue, T35_can_fit_full_sequence_full_attention_still_gates_oversized) {
  for (const CacheProfile p : kBoth) {
    Bench b(gated(p, 5));
    KvRequest& r = b.add(tokens(256));
    EXPECT_FALSE(b.admit(r, 16, true).ok);
    EXPECT_TRUE(b.admit(r, 16, false).ok);
  }
}

TEST(BlocksCatalogue, T36_eagle_swa_alignment_caches_extra_block) {
  for (const CacheProfile p : kBoth) {
    const bool m = p == CacheProfile::kM;
    Bench b(options(p, {full(32), flagged(swa(8, 8))}, 60));
    KvRequest& r = b.add(tokens(128));
    b.admit(r);
    EXPECT_EQ(b.keyed(r, 1), m ? (Ids{3, 7, 11, 15}) : (Ids{3, 4, 7, 8, 11, 12, 15}));
    EXPECT_EQ(b.hit_of(tokens(128)), m ? 0 : 96);
  }
}

TEST(BlocksCatalogue, T37_eagle_swa_boundary_caches_post_boundary_block) {
  for (const CacheProfile p : kBoth) {
    const bool m = p == CacheProfile::kM;
    Bench b(options(p, {full(32), flagged(swa(8, 8))}, 60));
    KvRequest& r = b.add(tokens(40));
    b.admit(r);
    EXPECT_EQ(b.keyed(r, 1), m ? Ids{3} : (Ids{3, 4}));
    EXPECT_EQ(b.hit_of(tokens(41)), m ? 0 : 32);
  }
}

TEST(BlocksCatalogue, T38_eagle_grouped_swa_siblings_use_same_cache_mask) {
  for (const CacheProfile p : kBoth) {
    const bool m = p == CacheProfile::kM;
    Bench b(options(p, {full(32), swa(8, 8), flagged(swa(8, 8))}, 60));
    KvRequest& r = b.add(tokens(72));
    b.admit(r);
    for (const std::size_t g : {1u, 2u}) {
      EXPECT_EQ(b.keyed(r, g), m ? (Ids{3, 7}) : (Ids{3, 4, 7, 8}));
    }
    EXPECT_EQ(b.hit_of(tokens(73)), m ? 0 : 64);
  }
}

KvOptions sparse(std::vector<GroupSpec> groups, std::int64_t blocks, std::int64_t interval) {
  KvOptions o = options(CacheProfile::kA, std::move(groups), blocks);
  o.retention = interval;
  return o;
}

TEST(BlocksCatalogue, T39_hybrid_local_kv_retention_interval_aligns_in_manager) {
  Bench b(sparse({full(32), swa(8, 8)}, 60, 64));
  KvRequest& r = b.add(tokens(128));
  b.admit(r);
  EXPECT_EQ(b.keyed(r, 1), (Ids{7, 11, 15}));
}

TEST(BlocksCatalogue, T40_hybrid_local_kv_retention_interval_rejects_invalid) {
  const Result<KvOptions> odd = check_options(sparse({full(32), swa(8, 8)}, 60, 33));
  ASSERT_FALSE(odd);
  EXPECT_NE(odd.error().text().find("multiple of scheduler_block_size"), std::string::npos);
  const Result<KvOptions> negative = check_options(sparse({full(32), swa(8, 8)}, 60, -32));
  ASSERT_FALSE(negative);
  EXPECT_NE(negative.error().text().find("non-negative"), std::string::npos);
}

TEST(BlocksCatalogue, T41_hybrid_local_kv_retention_interval_survives_recycling) {
  KvOptions o = sparse({full(256), swa(64, 512), swa(8, 128), swa(4, 8)}, 800, 1024);
  o.max_model_len = 4097;
  o.cap_tokens = 512;
  Bench b(o);
  const auto fill = [&](const Ids& prompt) {
    KvRequest& r = b.add(prompt);
    std::int64_t hit = b.admit(r, 512).hit;
    while (r.computed < r.num_tokens()) {
      ASSERT_TRUE(b.step(r, std::min<std::int64_t>(512, r.num_tokens() - r.computed)).ok) << hit;
    }
    b.free(r);
  };
  fill(tokens(4096));
  const auto sizes = [&] {
    Ids out;
    for (const Ids& list : b.lookup(tokens(1800))) {
      out.push_back(static_cast<std::int32_t>(list.size()));
    }
    return out;
  };
  EXPECT_EQ(sizes(), (Ids{4, 16, 128, 256}));
  EXPECT_EQ(b.last_hit, 1024);
  fill(tokens(4096, 100000));
  EXPECT_EQ(sizes(), (Ids{4, 16, 128, 256}));
  EXPECT_EQ(b.last_hit, 1024);
}

TEST(BlocksCatalogue, T42_hybrid_local_kv_retention_latest_only_reuses_replay_boundary) {
  Bench b(sparse({full(32), swa(8, 8)}, 60, 0));
  KvRequest& r = b.add(tokens(128));
  b.admit(r);
  EXPECT_EQ(b.keyed(r, 1), Ids{11});
  b.free(r);
  EXPECT_EQ(b.kv.pool().refs(b.pool_block(r, 1, 11)), 0);
  const Lists lists = b.lookup(tokens(128));
  EXPECT_EQ(b.last_hit, 96);
  EXPECT_EQ(lists[1].size(), 12u);
  EXPECT_EQ(b.hit_of(tokens(96)), 0);
}

TEST(BlocksCatalogue, T43_hybrid_local_kv_retention_mtp_reuses_latest_boundary) {
  Bench b(sparse({full(32), flagged(swa(8, 8))}, 60, 0));
  KvRequest& r = b.add(tokens(127));
  b.admit(r);
  EXPECT_EQ(b.keyed(r, 1), (Ids{11, 12}));
  const Lists lists = b.lookup(tokens(127));
  EXPECT_EQ(b.last_hit, 96);
  EXPECT_EQ(lists[0].size(), 3u);
  EXPECT_EQ(lists[1].size(), 12u);
}

TEST(BlocksCatalogue, T44_pure_swa_retention) {
  const std::vector<std::tuple<std::optional<std::int64_t>, Ids, std::int64_t>> cases = {
      {64, {3, 7, 11, 14, 15}, 240}, {0, {14}, 240}, {std::nullopt, range(0, 15), 240}};
  for (const auto& [interval, keyed, replay] : cases) {
    KvOptions o = options(CacheProfile::kA, {swa(16, 16)}, 20);
    o.retention = interval;
    Bench b(o);
    KvRequest& r = b.add(tokens(256));
    b.admit(r);
    EXPECT_EQ(b.keyed(r, 0), keyed);
    EXPECT_EQ(b.hit_of(tokens(256)), replay);
  }
}

TEST(BlocksCatalogue, T45_swa_reachable_block_mask_pins_shared_prefix) {
  const auto kept = [](std::optional<std::int64_t> interval, std::vector<std::int64_t> ends,
                       std::int32_t window) {
    const Retention retention(swa(16, window), 16, false, interval);
    Ids out;
    for (std::int32_t i = 0; i < 16; ++i) {
      if (retention.keeps(i, ends)) out.push_back(i);
    }
    return out;
  };
  EXPECT_EQ(kept(0, {255, 96}, 16), (Ids{5, 14}));
  EXPECT_EQ(kept(0, {255, 96}, 48), (Ids{3, 4, 5, 12, 13, 14}));
  EXPECT_EQ(kept(64, {255, 96}, 16), (Ids{3, 5, 7, 11, 14, 15}));
  EXPECT_EQ(kept(std::nullopt, {255, 96}, 16), range(0, 15));
  EXPECT_EQ(kept(0, {255}, 16), Ids{14});
  EXPECT_EQ(kept(0, {255, 4096}, 16), Ids{14});
}

TEST(BlocksCatalogue, T46_swa_shared_prefix_reuse_under_zero_retention) {
  const auto third_hit = [](std::optional<std::int64_t> interval, bool pin) {
    KvOptions o = options(CacheProfile::kA, {full(16), swa(16, 32)}, 60);
    o.retention = interval;
    Bench b(o);
    std::optional<std::int64_t> boundary;
    for (const std::int32_t first : {1000, 2000}) {
      KvRequest& r = b.add(tokens(64) + tokens(32, first));
      const PrefixHit hit = b.kv.lookup(r);
      boundary = hit.shared;
      if (!pin) r.shared.reset();
      Allocation a;
      a.new_tokens = r.num_tokens() - hit.tokens;
      a.hit = &hit;
      EXPECT_EQ(b.kv.allocate(r, a), Allocated::kYes);
      r.computed = r.num_tokens();
    }
    EXPECT_EQ(boundary.value_or(64), 64);
    EXPECT_EQ(boundary.has_value(), interval.has_value());
    return b.hit_of(tokens(64) + tokens(32, 3000));
  };
  EXPECT_EQ(third_hit(std::nullopt, true), 64);
  EXPECT_EQ(third_hit(0, false), 0);
  EXPECT_EQ(third_hit(0, true), 64);
}

TEST(BlocksCatalogue, T47_swa_free_split_keeps_cached_tail_ahead_of_scratch) {
  Bench b(options(CacheProfile::kA, {full(32), swa(8, 8)}, 21));
  KvRequest& r = b.add(tokens(128));
  b.admit(r);
  EXPECT_EQ(b.num_free(), 0);
  b.free(r);
  bool keyed = false;
  for (const std::int32_t id : b.queue()) {
    EXPECT_FALSE(keyed && !b.kv.pool().hashed(id)) << id;
    keyed = keyed || b.kv.pool().hashed(id);
  }
  EXPECT_EQ(b.hit_of(tokens(129)), 128);
}

// Pretended local hits, tokens from outside and new ones at once: no id twice.
TEST(BlocksCatalogue, T48_cache_hit_local_and_external) {
  for (const std::size_t windows : {1u, 2u}) {
    std::vector<GroupSpec> groups = {full(16)};
    groups.resize(windows + 1, swa(16, 1600));
    Bench b(options(CacheProfile::kA, groups, 31));
    for (int round = 0; round < 2; ++round) {
      const Ids prompt = tokens(128, 1000 * round);
      // Blocks of 80 tokens in every group, free and findable: the pretended hits.
      KvRequest& owner = b.add(tokens(80, 1000 * round));
      b.admit(owner);
      b.free(owner);
      KvRequest& r = b.add(prompt);
      const PrefixHit hit = b.kv.lookup(r);
      ASSERT_EQ(hit.tokens, 80);
      Allocation a;
      a.hit = &hit;
      a.external = 32;
      a.new_tokens = 16;
      ASSERT_EQ(b.kv.allocate(r, a), Allocated::kYes);
      std::map<std::int32_t, int> seen;
      for (std::size_t g = 0; g < groups.size(); ++g) {
        EXPECT_EQ(b.table(r, g).size(), 8u);
        for (const std::int32_t id : b.table(r, g)) {
          ++seen[id];
          EXPECT_GE(b.kv.pool().refs(id), 1);
        }
      }
      for (const auto& [id, times] : seen) EXPECT_EQ(times, 1) << id;
      r.computed = 128;
      b.free(r);
    }
  }
}

}  // namespace blocks_catalogue_hybrid_test
}  // namespace attnscope::blocks_test
