// The longest prefix of a request that every group still has: per kind a search over the prefix
// map, over all kinds the fixed point of these searches.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/cache/block_pool.h"
#include "engine/cache/group_spec.h"
#include "engine/cache/kv_request.h"

namespace attnscope {

// Blocks of one group: `nulls` null entries, then real ones.
struct GroupHit {
  std::int64_t nulls = 0;
  std::vector<std::int32_t> blocks;
  std::int64_t size() const { return nulls + static_cast<std::int64_t>(blocks.size()); }
  std::int32_t operator[](std::int64_t i) const {
    return i < nulls ? 0 : blocks[static_cast<std::size_t>(i - nulls)];
  }
  void pop();  // size() > 0
  void cut(std::int64_t n);
};

struct PrefixHit {
  std::int64_t tokens = 0;
  std::vector<GroupHit> groups;
  // Longest prefix that one kind of group had, where it is longer than `tokens`.
  std::optional<std::int64_t> shared;
  bool any() const { return tokens > 0; }
};

// Groups that are looked up together because a key must exist in all of them.
struct LookupBatch {
  GroupSpec spec;
  std::vector<std::int32_t> groups;
  bool draft = false;  // one of them is flagged
};
// In order of first appearance, full ones first.
std::vector<LookupBatch> lookup_batches(std::span<const GroupSpec> groups);

// One search of one batch: the blocks of at most `max_tokens` tokens, a whole number of `alignment`
// tokens; out[i] belongs to batch.groups[i]. `draft`: the last block is given up.
struct GroupSearch {
  const BlockPool& pool;
  const HashChain& chain;
  std::int64_t hash_block = 0;
};
void find_hit(const GroupSearch& search, const LookupBatch& batch, std::int64_t max_tokens,
              bool draft, std::int64_t alignment, std::span<GroupHit> out);

// Tokens of a search's hit in one group. With all rows that a group of first tokens has it goes as
// far as was asked.
std::int64_t reach_of_hit(const GroupSpec& spec, const GroupHit& hit, std::int64_t max_tokens,
                          std::int64_t alignment);

// Joint lookup of prefixes of at most `max_hit` tokens. Keeps its buffers between calls.
class PrefixLookup {
 public:
  PrefixLookup(std::span<const GroupSpec> groups, std::int64_t alignment, std::int64_t hash_block,
               FullTrim trim);

  void find(const BlockPool& pool, const HashChain& chain, std::int64_t max_hit, PrefixHit& out);
  const std::vector<LookupBatch>& batches() const { return batches_; }
  std::int64_t alignment() const { return alignment_; }

 private:
  void find_single(const GroupSearch& search, std::int64_t max_hit, PrefixHit& out);
  void find_joint(const GroupSearch& search, std::int64_t max_hit, PrefixHit& out);

  std::vector<LookupBatch> batches_;
  std::int64_t alignment_;
  std::int64_t hash_block_;
  FullTrim trim_;
  std::vector<std::vector<GroupHit>> found_;  // by batch, by its groups
};

}  // namespace attnscope
