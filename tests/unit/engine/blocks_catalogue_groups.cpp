// Scenarios of single groups: searches, windows, needs; of hashes and of the event stream.
#include <gtest/gtest.h>

#include "tests/unit/engine/blocks_bench.h"

namespace attnscope::blocks_test {
namespace blocks_catalogue_groups_test {

// A search over entries that are there (T) or not (F); entry i is block i + 10.
std::vector<Ids> search(const GroupSpec& spec, const std::string& there, std::int64_t max_tokens) {
  BlockPool pool(64, true, FreeOrder::kAppend);
  Ids taken;
  pool.get(60, taken);
  HashChain chain;
  const auto n = static_cast<std::int64_t>(there.size());
  chain.extend(tokens(static_cast<std::int32_t>(n + 2) * spec.block_tokens), spec.block_tokens, {});
  for (std::int64_t i = 0; i < n; ++i) {
    if (there[static_cast<std::size_t>(i)] == 'T') {
      pool.cache(static_cast<std::int32_t>(i) + 10, chain[i], 0);
    }
  }
  std::vector<GroupHit> out(1);
  find_hit({pool, chain, spec.block_tokens}, {spec, {0}, false}, max_tokens, false,
           spec.block_tokens, out);
  Ids ids;
  for (std::int64_t i = 0; i < out[0].size(); ++i) ids.push_back(out[0][i]);
  return {ids};
}

TEST(BlocksCatalogue, T49_sliding_window_possible_cached_prefix) {
  const auto hit = [](const std::string& there) {
    return search(swa(2, 4), there, static_cast<std::int64_t>(there.size()) * 2)[0];
  };
  EXPECT_EQ(hit(std::string(10, 'F')).size(), 0u);
  EXPECT_EQ(hit("T").size(), 1u);
  EXPECT_EQ(hit("TF").size(), 1u);
  EXPECT_EQ(hit("TT").size(), 2u);
  EXPECT_EQ(hit("TTF").size(), 2u);
  EXPECT_EQ(hit("TTT"), (Ids{0, 11, 12}));
  EXPECT_EQ(hit("TTTF").size(), 3u);
  const Ids long_one = hit("TTFTFFTTFTTT");
  EXPECT_EQ(long_one, nulls(10) + Ids({20, 21}));
  EXPECT_EQ(hit("TTFTFFTTFFF"), nulls(6) + Ids({16, 17}));
  EXPECT_EQ(hit("TTFTFFTTFFFT"), nulls(6) + Ids({16, 17}));
}

TEST(BlocksCatalogue, T50_chunked_local_attention_possible_cached_prefix) {
  const auto hit = [](const std::string& there, std::int64_t tail) {
    return search(chunked(2, 4), there, static_cast<std::int64_t>(there.size()) * 2 + tail)[0]
        .size();
  };
  for (const std::int64_t tail : {0, 1}) {
    EXPECT_EQ(hit("T", tail), 1u);
    EXPECT_EQ(hit("TF", tail), 2u);
    EXPECT_EQ(hit("TT", tail), 2u);
    EXPECT_EQ(hit("TTF", tail), 2u);
    EXPECT_EQ(hit("TTT", tail), 3u);
    EXPECT_EQ(hit("TTTF", tail), 4u);
    for (const char* last : {"TF", "FT", "FF", "TT"}) {
      EXPECT_EQ(hit("FTFTFTFT" + std::string(last), tail), 10u) << last;
    }
  }
  EXPECT_EQ(hit("FTFTFTFTT", 1), 9u);
  EXPECT_EQ(hit("FTFTFTFTF", 1), 8u);
}

// How many entries are null after each number of computed tokens.
Ids dropped(const GroupSpec& spec, const Ids& computed, Ids* queue_tail) {
  KvOptions o = options(CacheProfile::kM, {spec}, 30);
  o.caching = false;  // past chunks would be hits
  Bench b(o);
  KvRequest& r = b.add(tokens(22));
  b.admit(r);
  Ids out;
  for (const std::int32_t n : computed) {
    r.computed = n;
    Allocation a;
    a.new_tokens = 1;
    EXPECT_EQ(b.kv.allocate(r, a), Allocated::kYes);
    const Ids table = b.table(r);
    out.push_back(static_cast<std::int32_t>(std::count(table.begin(), table.end(), 0)));
  }
  *queue_tail = b.queue();
  return out;
}

TEST(BlocksCatalogue, T51_sliding_window_remove_skipped_blocks) {
  Ids queue;
  EXPECT_EQ(dropped(swa(2, 4), {0, 4, 5, 6, 7, 11}, &queue), (Ids{0, 0, 1, 1, 2, 4}));
  // Blocks of a step from the newest down.
  EXPECT_EQ(Ids(queue.end() - 4, queue.end()), (Ids{1, 2, 4, 3}));
}

TEST(BlocksCatalogue, T52_chunked_local_attention_remove_skipped_blocks) {
  Ids queue;
  EXPECT_EQ(dropped(chunked(2, 4), {0, 4, 6, 12}, &queue), (Ids{0, 2, 2, 6}));
}

TEST(BlocksCatalogue, T53_get_num_blocks_to_allocate) {
  for (const GroupSpec& spec : {swa(2, 4), chunked(2, 4)}) {
    KvManager kv(*check_options(options(CacheProfile::kM, {spec}, 100)));
    KvRequest r;
    r.tokens = tokens(40);
    kv.add(r);
    PrefixHit hit;
    hit.groups.resize(1);
    hit.groups[0].blocks = range(1, 10);
    EXPECT_EQ(kv.need(r, 40, 0, &hit, false), 20);
    hit.groups[0] = {5, range(6, 10)};
    EXPECT_EQ(kv.need(r, 40, 0, &hit, false), 15);
  }
}

TEST(BlocksCatalogue, T54_evictable_cached_blocks_not_double_allocated) {
  Bench b(options(CacheProfile::kM, {swa(2, 4)}, 10));
  KvRequest& r0 = b.add(tokens(2));
  b.admit(r0);
  b.free(r0);
  KvRequest& r = b.add(tokens(4));
  const PrefixHit hit = b.kv.lookup(r);
  ASSERT_EQ(hit.tokens, 2);
  EXPECT_EQ(b.kv.need(r, 4, 2, &hit, false), 2);
  EXPECT_EQ(b.admit(r, 2).fresh[0].size(), 1u);
  EXPECT_EQ(b.table(r).size(), 2u);
}

TEST(BlocksCatalogue, T55_predictor_matches_allocator_blocks_calculation_with_admission_cap) {
  KvOptions o = options(CacheProfile::kM, {swa(2, 8)}, 40);
  o.caching = false;
  o.cap_tokens = 1;
  KvManager kv(*check_options(o));  // not audited: the request outgrows its cap on purpose
  ASSERT_EQ(kv.cap(0), 5);
  KvRequest r;
  r.tokens = tokens(16);
  kv.add(r);
  for (const std::int64_t total : {4, 8, 12, 16}) {
    const std::int64_t need = kv.need(r, total, 0, nullptr, false);
    const std::int64_t before = kv.pool().num_free();
    Allocation a;
    a.new_tokens = total;
    ASSERT_EQ(kv.allocate(r, a), Allocated::kYes);
    EXPECT_EQ(before - kv.pool().num_free(), need);
    EXPECT_EQ(need, 2);
  }
}

TEST(BlocksCatalogue, T57_generate_block_hash_extra_keys) {
  HashExtras extras;
  extras.media = {{"h1", 0, 5}, {"h2", 10, 5}};
  using Keys = std::vector<ExtraKey>;
  const auto run = [&](std::int64_t start, std::int64_t end, const Keys& expected,
                       std::int64_t cursor) {
    std::int64_t item = 0;
    EXPECT_EQ(block_extras(extras, start, end, item), expected);
    EXPECT_EQ(item, cursor);
  };
  run(0, 5, {{"h1", 0}}, 1);
  run(3, 8, {{"h1", -3}}, 1);
  run(6, 10, {}, 1);
  run(0, 15, {{"h1", 0}, {"h2", 10}}, 2);
  // From the last one on: what appended tokens begin with.
  std::int64_t last = -1;
  EXPECT_EQ(block_extras(extras, 12, 16, last), (Keys{{"h2", -2}}));
}

TEST(BlocksCatalogue, T58_generate_block_hash_extra_keys_cache_salt) {
  HashExtras extras;
  extras.salt = "salt";
  std::int64_t item = 0;
  using Keys = std::vector<ExtraKey>;
  EXPECT_EQ(block_extras(extras, 0, 1, item), (Keys{{"salt", {}}}));
  EXPECT_EQ(block_extras(extras, 1, 2, item), Keys{});
  extras.media = {{"h1", 0, 5}};
  item = 0;
  EXPECT_EQ(block_extras(extras, 0, 5, item), (Keys{{"h1", 0}, {"salt", {}}}));
}

TEST(BlocksCatalogue, T59_generate_block_hash_extra_keys_lora) {
  HashExtras extras;
  extras.adapter = "adapter";
  std::int64_t item = 0;
  EXPECT_EQ(block_extras(extras, 16, 32, item), (std::vector<ExtraKey>{{"adapter", {}}}));
  // Same tokens, other adapter: other content.
  HashChain plain, with;
  plain.extend(tokens(32), 16, {});
  with.extend(tokens(32), 16, extras);
  EXPECT_NE(plain[0], with[0]);
  EXPECT_NE(plain[1], with[1]);
}

TEST(BlocksCatalogue, T60_request_block_hasher) {
  HashExtras extras;
  extras.media = {{"h1", 0, 3}, {"h2", 3, 3}};
  HashChain chain;
  chain.extend(tokens(6), 3, extras);
  ASSERT_EQ(chain.size(), 2);
  const std::vector<ExtraKey> first = {{"h1", 0}}, second = {{"h2", 0}};
  const Ids t = tokens(6);
  EXPECT_EQ(chain[0], hash_block(nullptr, std::span(t).first(3), first));
  EXPECT_EQ(chain[1], hash_block(&chain[0], std::span(t).last(3), second));
  HashChain none;
  none.extend(tokens(6), 3, {});
  EXPECT_EQ(none[0], hash_block(nullptr, std::span(t).first(3), {}));
  // Growing token by token gives the same.
  HashChain slow;
  Ids some;
  for (const std::int32_t token : t) {
    some.push_back(token);
    slow.extend(some, 3, extras);
  }
  EXPECT_EQ(slow.hashes(), chain.hashes());
}

TEST(BlocksCatalogue, T63_boundary_hashes_reuse_fine_grained_chain) {
  // A group of six-token blocks over two-token hashes is known by the last of three.
  Bench b(options(CacheProfile::kA, {full(6), swa(2, 3)}, 20));
  KvRequest& r = b.add(tokens(10));
  ASSERT_EQ(b.kv.options().hash_block, 2);
  b.admit(r);
  EXPECT_EQ(b.pool_block(r, 0, 0), 1);
  EXPECT_EQ(b.kv.pool().find(r.chain[2], 0), 1);
  EXPECT_EQ(b.kv.pool().find(r.chain[1], 0), -1);
}

TEST(BlocksCatalogue, T65_kv_cache_events) {
  for (const std::int32_t n : {2, 3, 10}) {
    Bench b(options(CacheProfile::kM, {full(16)}, n + 1));
    b.kv.keep_events(true);
    KvRequest& r0 = b.add(tokens(n * 16));
    b.admit(r0);
    std::vector<KvEvent> events = b.kv.take_events();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind, KvEventKind::kBlockStored);
    EXPECT_EQ(events[0].hashes.size(), static_cast<std::size_t>(n));
    EXPECT_EQ(events[0].tokens.size(), static_cast<std::size_t>(n * 16));
    EXPECT_EQ(events[0].spec_kind, "full_attention");
    EXPECT_FALSE(events[0].parent);
    EXPECT_TRUE(b.kv.take_events().empty());
    b.free(r0);
    KvRequest again;
    again.tokens = tokens(n * 16);
    again.skip_lookup = true;
    KvRequest& r1 = b.add(again);
    b.admit(r1);
    events = b.kv.take_events();
    ASSERT_EQ(events.size(), static_cast<std::size_t>(n + 1));
    for (std::size_t i = 0; i < events.size(); ++i) {
      EXPECT_EQ(events[i].kind, i < static_cast<std::size_t>(n) ? KvEventKind::kBlockRemoved
                                                                : KvEventKind::kBlockStored);
    }
    b.free(r1);
    EXPECT_TRUE(b.kv.reset_prefix_cache());
    events = b.kv.take_events();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind, KvEventKind::kAllBlocksCleared);
    EXPECT_EQ(b.keys(), 0);
  }
}

TEST(BlocksCatalogue, T66_null_parent_block_hash) {
  // The parent is the request's hash, also where its block has left the window.
  Bench b(options(CacheProfile::kM, {swa(1, 2)}, 10));
  b.kv.keep_events(true);
  KvRequest& r = b.add(tokens(4));
  b.admit(r, 2);
  b.kv.take_events();
  b.step(r, 2);
  const std::vector<KvEvent> events = b.kv.take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(b.table(r)[0], 0);
  EXPECT_EQ(events[0].parent, hash_text(r.chain[1]));
  EXPECT_EQ(events[0].hashes,
            (std::vector<std::string>{hash_text(r.chain[2]), hash_text(r.chain[3])}));
  EXPECT_FALSE(b.kv.pool().hashed(0));
}

TEST(BlocksCatalogue, T67_kv_cache_events_with_lora_and_groups) {
  Bench b(options(CacheProfile::kM, {full(16), swa(16, 128)}, 20));
  b.kv.keep_events(true);
  KvRequest r;
  r.tokens = tokens(32);
  r.extras.adapter = "adapter";
  b.admit(b.add(r));
  const std::vector<KvEvent> events = b.kv.take_events();
  ASSERT_EQ(events.size(), 2u);
  for (std::size_t g = 0; g < 2; ++g) {
    EXPECT_EQ(events[g].group, static_cast<std::int32_t>(g));
    EXPECT_EQ(events[g].adapter, "adapter");
  }
  EXPECT_EQ(events[1].spec_kind, "sliding_window");
  EXPECT_EQ(events[1].window, 128);
}

TEST(BlocksCatalogue, T68_block_removed_event_group_idx) {
  Bench b(options(CacheProfile::kM, {full(16), swa(16, 32)}, 5));
  b.kv.keep_events(true);
  KvRequest& r0 = b.add(tokens(16));
  b.admit(r0);
  b.free(r0);
  b.kv.take_events();
  b.admit(b.add(tokens(17, 500)));
  std::vector<std::int32_t> groups;
  for (const KvEvent& e : b.kv.take_events()) {
    if (e.kind == KvEventKind::kBlockRemoved) groups.push_back(e.group);
  }
  EXPECT_EQ(groups, (Ids{0, 1}));
}

}  // namespace blocks_catalogue_groups_test
}  // namespace attnscope::blocks_test
