// From the caches of a model's layers to groups and storage: how caches are grouped, and where each
// lies inside a block of the one packed slab. Which caches there are the family says
// (engine/family/deepseek_v4/caches.h).
//
// Rules: caches without a window form the one full group; the others are bucketed by kind, block
// size and window in order of first appearance.
// With t = count of a group's most frequent page size, d in [t of MLA, max t] minimises
// sum(roundup(t, d) - t) (ties: larger d); a bucket with t > d is split into ceil(t / d) groups by
// striding. A group with a cache of a draft layer is flagged. Storage: inside a block the layers of
// a group lie densely from offset 0 (groups overlay each other, a block id belongs to one group at
// a time); block stride = largest group.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/cache/cache_spec.h"
#include "kernels/params/result.h"

namespace attnscope {

struct CacheGroup : GroupSpec {
  std::string name;        // "MLA", "SWA-a", "SWA-b", "C4 state", "C128 state"
  std::int64_t bytes = 0;  // sum of its layers' pages
  std::vector<int> specs;  // indices into CacheLayout::specs
};

struct CacheLayout {
  std::vector<CacheSpec> specs;
  std::vector<CacheGroup> groups;  // full group first, then windowed ones
  std::int64_t block_stride = 0;   // bytes one block id costs
  int ranks = 1;                   // whose pages lie in a block, the own rank's first
  int mla_group = -1;              // -1: the model has no compressed layer
  std::vector<int> swa_groups;     // indices of the SWA groups, in order
  std::vector<int> chunk_groups;   // of those with chunks; they follow one another
  // Layers without caches of their own, and the earlier layer whose caches each of them reads:
  // these are there once, in their groups, blocks and sizes too. Set by build_cache_layout().
  std::map<int, int> shared;

  // The layer whose caches a layer reads: mostly its own.
  int owner(int layer) const {
    const auto it = shared.find(layer);
    return it == shared.end() ? layer : it->second;
  }
  // Those that read a layer's caches beside itself, ascending.
  std::vector<int> sharers(int layer) const;

  // Spec of a layer's cache, or of the one that it shares; nullptr when the layer has no such one.
  // Of AS_CACHE_ANY: of the one with the rows that it selects from, or attends all of.
  // peer: that of another rank, which is the own one's where all ranks hold the same bytes; -1 = of
  // the own rank.
  const CacheSpec* find(int layer, CacheId id, int peer = -1) const;
  // Of the cache that a tap of an op is.
  const CacheSpec* of_tap(int layer, std::int32_t op, std::size_t offset, int peer = -1) const {
    return find(layer, tap_cache(op, offset), peer);
  }
  const CacheSpec* of_tap(int layer, std::int32_t op, std::string_view tap) const {
    return find(layer, tap_cache(op, tap));
  }
  // Of a block, its first ones: those that the own rank has.
  std::int64_t own_bytes() const { return block_stride / ranks; }
  // Blocks a request of max_len tokens may need at most when token_budget tokens are computed a
  // step (the admission cap, summed over the groups).
  std::int64_t demand(std::int64_t max_len, std::int64_t token_budget) const;
};

// The cache of a layer whose rows are entries that stand for several tokens each, and are attended;
// nullptr = it has none.
const CacheSpec* entries_of(const CacheLayout& layout, int layer);

// Tokens whose states are pooled into one entry of a cache with a row for so many tokens: more than
// these where neighbouring entries overlap.
int tokens_pooled(const CacheLayout& layout, int tokens_per_row);

// The cache of a layer that has a row for every token, which attention reads: latent rows, or keys;
// nullptr = there is none.
const CacheSpec* token_rows(const CacheLayout& layout, int layer);
// The cache of a layer that has the row of this position in 16 bits too, as one of first tokens;
// role: AS_CACHE_K or AS_CACHE_V. nullptr = none.
const CacheSpec* wide_rows(const CacheLayout& layout, int layer, int role, std::int64_t position);
// Whether rows for every token leave the layer, as those outside of a window do.
bool has_window(const CacheLayout& layout, int layer);
// The one whose rows are what attention weighs: latent rows, or values.
const CacheSpec* value_rows(const CacheLayout& layout, int layer);

// specs: of all layers, in order of registration; each layer's follow one another.
CacheLayout group_caches(std::vector<CacheSpec> specs);

// The same beside the caches that other ranks have of their own: those that are dealt out by head.
// The own pages stay where they are, a block's in its first own_bytes(); behind them lie, in the
// order of ranks, as many bytes for each peer, whose pages have the same places there. own: which
// of the ranks the layout is of. Nothing is added where ranks hold the same bytes.
CacheLayout with_peers(CacheLayout layout, int ranks, int own);

}  // namespace attnscope
