#include "engine/cache/prefix_lookup.h"

#include <algorithm>

namespace attnscope {
namespace {

// The blocks of entry i in all groups of a batch, or a miss.
class Probe {
 public:
  Probe(const GroupSearch& search, const LookupBatch& batch)
      : pool_(search.pool),
        chain_(search.chain),
        groups_(batch.groups),
        ratio_(batch.spec.block_tokens / search.hash_block),
        blocks_(batch.groups.size()) {}

  std::int64_t entries() const { return chain_.size() / ratio_; }
  bool hit(std::int64_t i) {
    const BlockHash& hash = chain_[(i + 1) * ratio_ - 1];
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      blocks_[g] = pool_.find(hash, groups_[g]);
      if (blocks_[g] < 0) return false;
    }
    return true;
  }
  void append_to(std::span<GroupHit> out) const {
    for (std::size_t g = 0; g < groups_.size(); ++g) out[g].blocks.push_back(blocks_[g]);
  }

 private:
  const BlockPool& pool_;
  const HashChain& chain_;
  const std::vector<std::int32_t>& groups_;
  std::int64_t ratio_;
  std::vector<std::int32_t> blocks_;
};

void pop_all(std::span<GroupHit> out) {
  for (GroupHit& hit : out) hit.pop();
}

void align(std::span<GroupHit> out, std::int64_t block, std::int64_t alignment) {
  if (block == alignment) return;
  while (out[0].size() * block % alignment != 0) pop_all(out);
}

void find_full(Probe& probe, std::int64_t block, std::int64_t max_tokens, bool draft,
               std::int64_t alignment, std::span<GroupHit> out) {
  const std::int64_t n = std::min(max_tokens / block, probe.entries());
  for (std::int64_t i = 0; i < n && probe.hit(i); ++i) probe.append_to(out);
  if (draft && out[0].size() > 0) pop_all(out);
  align(out, block, alignment);
}

void find_sliding(Probe& probe, const GroupSpec& spec, std::int64_t max_tokens, bool draft,
                  std::int64_t alignment, std::span<GroupHit> out) {
  const std::int64_t block = spec.block_tokens;
  const std::int64_t need = window_blocks(spec, draft);
  // Entries at which a run of hits may end: i, or for a draft the entry before it, ends aligned.
  const std::int64_t shift = draft ? 0 : 1;
  const bool any_end = block == alignment;
  std::int64_t run = 0;  // entries [i, i + run) are hits
  std::int64_t i = std::min(max_tokens / block, probe.entries()) - 1;
  for (; i >= 0; --i) {
    if (run == 0 && !any_end && (i + shift) * block % alignment != 0) continue;
    if (probe.hit(i)) {
      probe.append_to(out);
      if (++run >= need) break;
    } else {
      run = 0;
      for (GroupHit& hit : out) hit.blocks.clear();
    }
  }
  // Without a whole window only a run from entry 0 on is left, if any.
  for (GroupHit& hit : out) {
    hit.nulls = std::max<std::int64_t>(i, 0);
    std::reverse(hit.blocks.begin(), hit.blocks.end());
  }
  if (run < need) align(out, block, alignment);
  if (draft && out[0].size() > 0) {
    pop_all(out);
    align(out, block, alignment);
  }
}

// Entries of the first tokens, and how far a hit may go by them: as far as it likes where all are
// there.
void find_first(Probe& probe, const GroupSpec& spec, std::int64_t max_tokens,
                std::int64_t alignment, std::span<GroupHit> out) {
  const std::int64_t n = std::min(full_blocks(spec, max_tokens), probe.entries());
  for (std::int64_t i = 0; i < n && probe.hit(i); ++i) probe.append_to(out);
  if (out[0].size() * spec.block_tokens < spec.window) align(out, spec.block_tokens, alignment);
}

void find_chunked(Probe& probe, const GroupSpec& spec, std::int64_t max_tokens,
                  std::span<GroupHit> out) {
  const std::int64_t block = spec.block_tokens;
  const std::int64_t start = max_tokens / spec.window * spec.window / block;
  for (GroupHit& hit : out) hit.nulls = start;
  const std::int64_t n = std::min(max_tokens / block, probe.entries());
  for (std::int64_t i = start; i < n && probe.hit(i); ++i) probe.append_to(out);
}

}  // namespace

void GroupHit::pop() {
  if (blocks.empty()) {
    --nulls;
  } else {
    blocks.pop_back();
  }
}

void GroupHit::cut(std::int64_t n) {
  while (size() > n) pop();
}

std::vector<LookupBatch> lookup_batches(std::span<const GroupSpec> groups) {
  std::vector<LookupBatch> batches;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    auto it = std::find_if(batches.begin(), batches.end(),
                           [&](const LookupBatch& b) { return b.spec.same_kind(groups[g]); });
    if (it == batches.end()) {
      batches.push_back({groups[g], {}, false});
      it = std::prev(batches.end());
    }
    it->groups.push_back(static_cast<std::int32_t>(g));
    it->draft = it->draft || groups[g].flagged;
  }
  std::stable_partition(batches.begin(), batches.end(),
                        [](const LookupBatch& b) { return b.spec.kind == GroupKind::kFull; });
  return batches;
}

void find_hit(const GroupSearch& search, const LookupBatch& batch, std::int64_t max_tokens,
              bool draft, std::int64_t alignment, std::span<GroupHit> out) {
  for (GroupHit& hit : out) {
    hit.nulls = 0;
    hit.blocks.clear();
  }
  Probe probe(search, batch);
  switch (batch.spec.kind) {
    case GroupKind::kFull:
      find_full(probe, batch.spec.block_tokens, max_tokens, draft, alignment, out);
      break;
    case GroupKind::kSliding:
      find_sliding(probe, batch.spec, max_tokens, draft, alignment, out);
      break;
    case GroupKind::kChunked:
      find_chunked(probe, batch.spec, max_tokens, out);
      break;
    case GroupKind::kFirst:
      find_first(probe, batch.spec, max_tokens, alignment, out);
      break;
  }
}

std::int64_t reach_of_hit(const GroupSpec& spec, const GroupHit& hit, std::int64_t max_tokens,
                          std::int64_t alignment) {
  const std::int64_t tokens = hit.size() * spec.block_tokens;
  const bool all = spec.kind == GroupKind::kFirst && tokens == spec.window;
  return all ? max_tokens / alignment * alignment : tokens;
}

PrefixLookup::PrefixLookup(std::span<const GroupSpec> groups, std::int64_t alignment,
                           std::int64_t hash_block, FullTrim trim)
    : batches_(lookup_batches(groups)),
      alignment_(alignment),
      hash_block_(hash_block),
      trim_(trim) {
  for (const LookupBatch& batch : batches_) found_.emplace_back(batch.groups.size());
}

void PrefixLookup::find(const BlockPool& pool, const HashChain& chain, std::int64_t max_hit,
                        PrefixHit& out) {
  const GroupSearch search{pool, chain, hash_block_};
  out.shared.reset();
  out.tokens = 0;
  if (batches_.size() == 1 && batches_[0].groups.size() == 1) {
    find_single(search, max_hit, out);
  } else {
    find_joint(search, max_hit, out);
  }
}

void PrefixLookup::find_single(const GroupSearch& search, std::int64_t max_hit, PrefixHit& out) {
  const LookupBatch& batch = batches_[0];
  out.groups.resize(1);
  find_hit(search, batch, max_hit, batch.draft, batch.spec.block_tokens, out.groups);
  out.tokens = out.groups[0].size() * batch.spec.block_tokens;
}

void PrefixLookup::find_joint(const GroupSearch& search, std::int64_t max_hit, PrefixHit& out) {
  std::vector<bool> looked_up(batches_.size(), false);
  std::vector<bool> verified(batches_.size(), false);
  std::int64_t hit = max_hit;
  std::int64_t longest = 0;
  for (;;) {
    std::int64_t current = hit;
    for (std::size_t b = 0; b < batches_.size(); ++b) {
      const LookupBatch& batch = batches_[b];
      const std::int64_t block = batch.spec.block_tokens;
      std::vector<GroupHit>& found = found_[b];
      if (batch.spec.kind == GroupKind::kFull && looked_up[b]) {
        // What is left of a prefix is a prefix: no need to search again.
        current = trim_ == FullTrim::kFloor ? current / block * block
                                            : std::min(current, found[0].size() * block);
        continue;
      }
      const bool draft = batch.draft && !verified[b];
      const std::int64_t most = draft ? std::min(current + block, max_hit) : current;
      find_hit(search, batch, most, draft, alignment_, found);
      const std::int64_t length = reach_of_hit(batch.spec, found[0], most, alignment_);
      if (draft) {
        verified[b] = true;
      } else if (length < current) {
        verified.assign(verified.size(), false);
      }
      current = length;
      longest = std::max(longest, length);
      looked_up[b] = true;
    }
    if (current >= hit) break;
    hit = current;
    if (batches_.size() == 2 && batches_[0].spec.kind == GroupKind::kFull) break;
  }
  std::size_t groups = 0;
  for (const LookupBatch& batch : batches_) groups += batch.groups.size();
  out.groups.resize(groups);
  for (std::size_t b = 0; b < batches_.size(); ++b) {
    const LookupBatch& batch = batches_[b];
    for (std::size_t i = 0; i < batch.groups.size(); ++i) {
      GroupHit& to = out.groups[static_cast<std::size_t>(batch.groups[i])];
      std::swap(to, found_[b][i]);
      if (!batch.spec.forgets()) to.cut(hit / batch.spec.block_tokens);
    }
  }
  out.tokens = hit;
  if (longest > hit) out.shared = longest;
}

}  // namespace attnscope
