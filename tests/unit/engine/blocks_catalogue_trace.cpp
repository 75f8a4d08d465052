// A request of a five-group model step by step, block id by block id: prefill in chunks, decode,
// sharing, frees, and what later prompts still find.
#include <gtest/gtest.h>

#include "tests/unit/engine/blocks_bench.h"

namespace attnscope::blocks_test {
namespace blocks_catalogue_trace_test {

using Lists = std::vector<Ids>;

KvOptions five_groups(CacheProfile profile, std::int64_t blocks = 2001) {
  KvOptions o =
      options(profile, {full(256), swa(64, 128), swa(64, 128), swa(4, 8), swa(8, 128)}, blocks);
  o.cap_tokens = 512;
  return o;
}

// One decode step: a token is known, its row is computed.
Got decode(Bench& b, KvRequest& r) {
  b.append(r, {static_cast<std::int32_t>(r.num_tokens())});
  return b.step(r, 1);
}

Ids cached(const Bench& b, const KvRequest& r) {
  Ids out;
  for (std::size_t g = 0; g < 5; ++g) {
    out.push_back(static_cast<std::int32_t>(b.kv.table(r.slot, g).cached));
  }
  return out;
}

Ids keys_by_group(const Bench& b) {
  Ids out(5, 0);
  for (const PrefixKey& key : b.kv.pool().map().keys()) ++out[static_cast<std::size_t>(key.group)];
  return out;
}

Ids sizes(const Lists& lists) {
  Ids out;
  for (const Ids& l : lists) out.push_back(static_cast<std::int32_t>(l.size()));
  return out;
}

// Free blocks and keys after each step, the same in both profiles.
void expect_counts(const Bench& b, std::int64_t free, std::int64_t keys) {
  EXPECT_EQ(b.num_free(), free);
  EXPECT_EQ(b.keys(), keys);
}

TEST(BlocksCatalogue, Trace_five_groups_profile_m) {
  Bench b(five_groups(CacheProfile::kM));
  KvRequest& a = b.add(tokens(1300));
  EXPECT_EQ(b.admit(a, 512).fresh,
            (Lists{range(1, 2), range(3, 10), range(11, 18), range(19, 146), range(147, 210)}));
  expect_counts(b, 1790, 46);
  EXPECT_EQ(b.step(a, 512).fresh, (Lists{range(211, 212), range(213, 220), range(221, 228),
                                         range(229, 356), range(357, 420)}));
  expect_counts(b, 1766, 92);
  EXPECT_EQ(b.table(a, 1), nulls(6) + Ids({9, 10}) + range(213, 220));
  EXPECT_EQ(b.table(a, 2), nulls(6) + Ids({17, 18}) + range(221, 228));
  EXPECT_EQ(b.table(a, 3), nulls(126) + Ids({145, 146}) + range(229, 356));
  EXPECT_EQ(b.table(a, 4), nulls(48) + range(195, 210) + range(357, 420));
  EXPECT_EQ(b.step(a, 276).fresh, (Lists{range(421, 422), range(423, 427), range(428, 432),
                                         range(433, 501), range(502, 536)}));
  expect_counts(b, 1858, 115);
  EXPECT_EQ(b.table(a, 1), nulls(14) + Ids({219, 220}) + range(423, 427));
  EXPECT_EQ(b.table(a, 2), nulls(14) + Ids({227, 228}) + range(428, 432));
  EXPECT_EQ(b.table(a, 3), nulls(254) + Ids({355, 356}) + range(433, 501));
  EXPECT_EQ(b.table(a, 4), nulls(112) + range(405, 420) + range(502, 536));

  EXPECT_EQ(decode(b, a).fresh, (Lists{{}, {}, {}, {537}, {}}));
  expect_counts(b, 1968, 115);
  for (const std::int64_t free : {1968, 1968, 1970}) {
    EXPECT_EQ(decode(b, a).fresh, (Lists{{}, {}, {}, {}, {}}));
    EXPECT_EQ(b.num_free(), free);
  }
  EXPECT_EQ(decode(b, a).fresh, (Lists{{}, {}, {}, {538}, {539}}));
  EXPECT_EQ(b.num_free(), 1968);
  decode(b, a);
  expect_counts(b, 1968, 115);
  EXPECT_EQ(b.table(a, 1), nulls(18) + range(425, 427));
  EXPECT_EQ(b.table(a, 2), nulls(18) + range(430, 432));
  EXPECT_EQ(b.table(a, 3), nulls(324) + Ids({501, 537, 538}));
  EXPECT_EQ(b.table(a, 4), nulls(147) + range(521, 536) + Ids({539}));
  EXPECT_EQ(cached(b, a), (Ids{5, 20, 20, 320, 160}));
  EXPECT_EQ(keys_by_group(b), (Ids{5, 10, 10, 10, 80}));

  KvRequest& other = b.add(tokens(1100) + Ids(100, 9));
  const Got got = b.admit(other, 176, true);
  EXPECT_EQ(got.hit, 1024);
  EXPECT_EQ(got.hits, (Lists{{1, 2, 211, 212},
                             nulls(14) + range(219, 220),
                             nulls(14) + range(227, 228),
                             nulls(254) + range(355, 356),
                             nulls(112) + range(405, 420)}));
  EXPECT_EQ(got.fresh,
            (Lists{{540}, range(541, 543), range(544, 546), range(547, 590), range(591, 612)}));
  EXPECT_EQ(b.num_free(), 1873);
  b.free(a);
  EXPECT_EQ(b.num_free(), 1901);
  b.free(other);
  EXPECT_EQ(b.num_free(), 2000);
  const Ids queue = b.queue();
  EXPECT_EQ(queue.front(), 613);
  const Ids tail = range(586, 547) + Ids({356, 355}) + range(612, 591) + range(420, 405);
  EXPECT_EQ(Ids(queue.end() - static_cast<std::ptrdiff_t>(tail.size()), queue.end()), tail);

  EXPECT_EQ(b.lookup(tokens(1300)), (Lists{{1, 2, 211, 212, 421},
                                           nulls(18) + range(425, 426),
                                           nulls(18) + range(430, 431),
                                           nulls(318) + range(495, 496),
                                           nulls(144) + range(518, 533)}));
  EXPECT_EQ(b.last_hit, 1280);
  // A prompt that ends on the boundary must compute its last token.
  EXPECT_EQ(sizes(b.lookup(tokens(1024))), (Ids{3, 12, 12, 192, 96}));
  EXPECT_EQ(b.last_hit, 768);
  EXPECT_EQ(sizes(b.lookup(tokens(1025))), (Ids{4, 16, 16, 256, 128}));
  EXPECT_EQ(b.last_hit, 1024);
  EXPECT_EQ(b.lookup(tokens(300)), (Lists{{1},
                                          nulls(2) + range(5, 6),
                                          nulls(2) + range(13, 14),
                                          nulls(62) + range(81, 82),
                                          nulls(16) + range(163, 178)}));
  EXPECT_EQ(b.last_hit, 256);
}

TEST(BlocksCatalogue, Trace_five_groups_profile_a) {
  Bench b(five_groups(CacheProfile::kA));
  KvRequest& a = b.add(tokens(1300));
  b.admit(a, 512);
  expect_counts(b, 1790, 46);
  EXPECT_EQ(b.step(a, 512).fresh,
            (Lists{{194, 193},
                   range(192, 185),
                   range(184, 179) + Ids({162, 161}),
                   range(160, 147) + range(144, 83) + range(80, 29),
                   range(28, 19) + Ids({16, 15, 12, 11, 8, 7, 4, 3}) + range(211, 256)}));
  expect_counts(b, 1766, 92);
  EXPECT_EQ(b.step(a, 276).fresh,
            (Lists{{240, 239},
                   range(238, 234),
                   range(233, 229),
                   range(228, 225) + Ids({7, 8, 11, 12, 15, 16}) + range(19, 28) + range(31, 79),
                   Ids({80}) + range(83, 94) + range(97, 118)}));
  EXPECT_EQ(b.num_free(), 1858);
  EXPECT_EQ(decode(b, a).fresh, (Lists{{}, {}, {}, {99}, {}}));
  EXPECT_EQ(b.num_free(), 1968);
  for (const std::int64_t free : {1968, 1968, 1970}) {
    EXPECT_EQ(decode(b, a).fresh, (Lists{{}, {}, {}, {}, {}}));
    EXPECT_EQ(b.num_free(), free);
  }
  EXPECT_EQ(decode(b, a).fresh, (Lists{{}, {}, {}, {78}, {98}}));
  EXPECT_EQ(b.num_free(), 1968);
  decode(b, a);
  KvRequest& other = b.add(tokens(1100) + Ids(100, 9));
  EXPECT_EQ(b.admit(other, 176, true).hit, 1024);
  EXPECT_EQ(b.num_free(), 1873);
  b.free(a);
  EXPECT_EQ(b.num_free(), 1901);
  b.free(other);
  EXPECT_EQ(b.num_free(), 2000);
  EXPECT_EQ(b.hit_of(tokens(1300)), 1280);
  EXPECT_EQ(sizes(b.lookup(tokens(1024))), (Ids{3, 12, 12, 192, 96}));
  EXPECT_EQ(sizes(b.lookup(tokens(1025))), (Ids{4, 16, 16, 256, 128}));
  EXPECT_EQ(sizes(b.lookup(tokens(300))), (Ids{1, 4, 4, 64, 32}));
}

// A draft model's layer in one window group: one profile never hits again, the other does.
TEST(BlocksCatalogue, Trace_five_groups_with_a_draft) {
  for (const CacheProfile p : kBoth) {
    for (const auto& groups : {Ids{1}, Ids{2}, Ids{1, 2}}) {
      for (const auto& [length, hit] : {std::pair(1300, 1024), std::pair(1345, 1280)}) {
        KvOptions o = five_groups(p, 4001);
        for (const std::int32_t g : groups) o.groups[static_cast<std::size_t>(g)].flagged = true;
        Bench b(o);
        b.audit.lookahead = 1;
        KvRequest& r = b.add(tokens(length));
        b.admit(r, 512, false, 1);
        while (r.computed < length) b.step(r, std::min<std::int64_t>(512, length - r.computed), 1);
        if (p == CacheProfile::kA) {
          const std::int32_t kept = length == 1300 ? 14 : 15;
          EXPECT_EQ(keys_by_group(b)[1], kept);
          EXPECT_EQ(keys_by_group(b)[2], kept);
        }
        b.free(r);
        EXPECT_EQ(b.hit_of(tokens(length)), p == CacheProfile::kA ? hit : 0);
      }
    }
  }
}

// What one segment of 256 tokens leaves findable.
TEST(BlocksCatalogue, KeysPerSegmentOfFiveGroups) {
  Bench b(five_groups(CacheProfile::kM));
  KvRequest& r = b.add(tokens(256));
  b.admit(r);
  EXPECT_EQ(keys_by_group(b), (Ids{1, 2, 2, 2, 16}));
}

}  // namespace blocks_catalogue_trace_test
}  // namespace attnscope::blocks_test
