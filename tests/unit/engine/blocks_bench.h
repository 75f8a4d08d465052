// A block manager under test: every call is audited, and what a call gave is easy to compare.
//
// Tests named T<n>_.. restate published tests of vLLM's cache manager and scheduler as independent
// checks. What has no such test here is not part of this engine:
//   - recurrent state and encoders: T30, T95;  windows with a gap (T56); partial blocks as keys of
//     their own (T62, T64); events that repeat what is cached for a newcomer (T69)
//   - a hit rate over the last requests (T70): sessions and workloads count hits as a whole
//   - grouping of arbitrary models and their automatic length (T71-T73, T76-T78): the groups are
//     DeepSeek-V4's; storage (T79) is checked on its presets, compressed slots (T80) by the ops'
//     references
//   - connectors and offloading to other memory: T91, T92, T99-T103
// T98, the long random run, is a property test.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <numeric>
#include <string>
#include <vector>

#include "engine/cache/kv_auditor.h"

namespace attnscope::blocks_test {

using Ids = std::vector<std::int32_t>;

inline Ids range(std::int32_t first,
                 std::int32_t last) {  // inclusive; descending where last < first
  Ids out;
  for (std::int32_t i = first; i != last; i += first < last ? 1 : -1) out.push_back(i);
  out.push_back(last);
  return out;
}
inline Ids operator+(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
inline Ids nulls(std::size_t n) { return Ids(n, 0); }
inline Ids tokens(std::int32_t count, std::int32_t first = 0) {
  Ids out(static_cast<std::size_t>(count));
  std::iota(out.begin(), out.end(), first);
  return out;
}

inline GroupSpec full(std::int32_t block) { return {GroupKind::kFull, block, 0, false}; }
inline GroupSpec swa(std::int32_t block, std::int32_t window) {
  return {GroupKind::kSliding, block, window, false};
}
inline GroupSpec chunked(std::int32_t block, std::int32_t chunk) {
  return {GroupKind::kChunked, block, chunk, false};
}
inline GroupSpec flagged(GroupSpec spec) {
  spec.flagged = true;
  return spec;
}

inline KvOptions options(CacheProfile profile, std::vector<GroupSpec> groups, std::int64_t blocks) {
  KvOptions o;
  o.groups = std::move(groups);
  o.num_blocks = blocks;
  o.switches = switches_of(profile);
  return o;
}

// What one admission or step gave, by group.
struct Got {
  bool ok = false;
  std::int64_t hit = 0;
  std::vector<Ids> hits;
  std::vector<Ids> fresh;  // ids that the table did not have before and no hit
};

class Bench {
 public:
  explicit Bench(const KvOptions& wanted) : kv(*check_options(wanted)) {
    audit.request = [this](std::int32_t slot) -> const KvRequest* {
      for (const KvRequest& r : requests) {
        if (r.slot == slot) return &r;
      }
      return nullptr;
    };
    kv.set_audit(&audit);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  ~Bench() {
    for (const Violation& v : audit.findings()) ADD_FAILURE() << v.text();
  }

  KvRequest& add(Ids prompt) {
    KvRequest r;
    r.tokens = std::move(prompt);
    return add(std::move(r));
  }
  KvRequest& add(KvRequest r) {
    r.id = static_cast<std::int64_t>(requests.size());
    r.prompt_tokens = r.num_tokens();
    requests.push_back(std::move(r));
    kv.add(requests.back());
    return requests.back();
  }

  // Lookup, then room for `n` further tokens (-1: all the request has).
  Got admit(KvRequest& r, std::int64_t n = -1, bool whole = false, std::int64_t lookahead = 0) {
    const PrefixHit hit = kv.lookup(r);
    Got got;
    got.hit = hit.tokens;
    got.hits = entries(hit);
    Allocation a;
    a.new_tokens = n < 0 ? r.num_tokens() - hit.tokens : n;
    a.hit = &hit;
    a.whole_sequence = whole;
    a.lookahead = lookahead;
    run(r, a, got);
    if (got.ok) r.computed = hit.tokens + a.new_tokens;
    return got;
  }
  // A step of a running request.
  Got step(KvRequest& r, std::int64_t n, std::int64_t lookahead = 0) {
    Got got;
    Allocation a;
    a.new_tokens = n;
    a.lookahead = lookahead;
    run(r, a, got);
    if (got.ok) r.computed += n;
    return got;
  }
  std::vector<Ids> lookup(Ids prompt) {
    KvRequest r;
    r.tokens = std::move(prompt);
    r.prompt_tokens = r.num_tokens();
    r.id = 1000;
    kv.extend_hashes(r);
    const PrefixHit& hit = kv.lookup(r);
    last_hit = hit.tokens;
    last_shared = hit.shared;
    return entries(hit);
  }
  std::int64_t hit_of(Ids prompt) {
    lookup(std::move(prompt));
    return last_hit;
  }
  void append(KvRequest& r, const Ids& more) {
    r.tokens.insert(r.tokens.end(), more.begin(), more.end());
    kv.extend_hashes(r);
  }
  void free(KvRequest& r) {
    kv.free(r, CacheReason::kFinish);
    r.computed = 0;
  }
  Ids table(const KvRequest& r, std::size_t g = 0) const { return kv.table(r.slot, g).blocks; }
  Ids queue() const { return kv.pool().queue().ids(); }
  std::int64_t num_free() const { return kv.pool().num_free(); }
  std::int64_t keys() const { return kv.pool().num_keys(); }
  // Takes the key of a request's block away.
  void forget(const KvRequest& r, std::size_t group, std::size_t index) {
    const std::int32_t id = pool_block(r, group, index);
    EXPECT_GT(id, 0);
    kv.evict(std::span(&id, 1));
  }
  // The block that has the key of the request's entry.
  std::int32_t pool_block(const KvRequest& r, std::size_t group, std::size_t index) const {
    const KvOptions& o = kv.options();
    const std::int64_t ratio = o.groups[group].block_tokens / o.hash_block;
    return kv.pool().find(r.chain[(static_cast<std::int64_t>(index) + 1) * ratio - 1],
                          static_cast<std::int32_t>(group));
  }
  // Entries of the request that have a key in a group.
  Ids keyed(const KvRequest& r, std::size_t group) const {
    const KvOptions& o = kv.options();
    const std::int64_t n = r.num_tokens() / o.groups[group].block_tokens;
    Ids out;
    for (std::int64_t i = 0; i < n; ++i) {
      if (pool_block(r, group, static_cast<std::size_t>(i)) >= 0) {
        out.push_back(static_cast<std::int32_t>(i));
      }
    }
    return out;
  }

  KvManager kv;
  KvAuditor audit;
  std::deque<KvRequest> requests;
  std::int64_t last_hit = 0;
  std::optional<std::int64_t> last_shared;

 private:
  static std::vector<Ids> entries(const PrefixHit& hit) {
    std::vector<Ids> out;
    for (const GroupHit& g : hit.groups) {
      Ids ids = nulls(static_cast<std::size_t>(g.nulls));
      ids.insert(ids.end(), g.blocks.begin(), g.blocks.end());
      out.push_back(std::move(ids));
    }
    return out;
  }
  void run(KvRequest& r, const Allocation& a, Got& got) {
    std::vector<std::size_t> before;
    for (std::size_t g = 0; g < kv.num_groups(); ++g) {
      const std::size_t had = kv.table(r.slot, g).blocks.size();
      before.push_back(std::max(had, got.hits.empty() ? 0 : got.hits[g].size()));
    }
    got.ok = kv.allocate(r, a) == Allocated::kYes;
    for (std::size_t g = 0; g < kv.num_groups(); ++g) {
      const Ids now = table(r, g);
      const std::size_t from = std::min(before[g], now.size());
      got.fresh.emplace_back(now.begin() + static_cast<std::ptrdiff_t>(from), now.end());
    }
  }
};

inline constexpr CacheProfile kBoth[] = {CacheProfile::kM, CacheProfile::kA};

}  // namespace attnscope::blocks_test
