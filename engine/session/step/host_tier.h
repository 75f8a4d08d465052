// Rows that layers select from in host memory, behind a pool of rows a layer on the device
// (engine/offload/row_pool.h): what op exchange_rows is told in each step.
//
// The pages of a request lie on the device while it prefills and on the host while it decodes. What
// a decoding token writes goes to a place in the pool and from there back to its page; what it
// selects is found in the pool, or is missed and comes in. Tokens that prefill write and read
// pages.
//
// The pool is made of blocks behind those of the block manager, in the same slab: row n of a
// layer's pool is row n of the layer's pages in them, so that all who look at slots see it too.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/metadata/host_rows.h"
#include "engine/offload/selection_trace.h"
#include "engine/session/step/history.h"
#include "engine/session/step/pool_counts.h"
#include "engine/session/step/slab.h"
#include "engine/session/step/token_part.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {

struct HostTierOptions {
  std::int64_t rows = 0;  // of each layer's pool
  PoolPolicy policy = PoolPolicy::kLru;
  int warm = kWarmWindows;
  std::int64_t first_block = 0;       // of the pool's
  std::vector<std::int64_t> prompts;  // tokens, by request
};

class HostTier {
 public:
  // layers: indices of those that select, among the layers that run.
  HostTier(const CacheLayout& layout, const std::vector<int>& layers, HostTierOptions options);

  // Blocks that the pools take in a slab.
  std::int64_t blocks() const;
  bool has(int layer) const { return find(layer) != nullptr; }
  const HostTierOptions& options() const { return options_; }
  const RowPool& pool(int layer) const { return find(layer)->pool; }

  // Once the step's slots are known: who leaves, who comes in before the first decode step, and
  // where new rows go.
  Result<void> begin_step(const StepMetadata& step);
  // Where the layer's new rows go: i64 [T], of the pool for tokens that decode, else of the pages.
  as_tensor slots(int layer) const;
  // Once tokens of a layer have selected, slots: i32 [T,K] of the pages. What they miss, and where
  // all lies. A step's tokens come in order, all at once or half by half. published: the layer's
  // number in counts().
  Result<void> select(int layer, int published, const as_tensor& indices, const as_tensor& slots,
                      TokenPart tokens);

  // What exchange_rows is given in the layer, as its params are called. M is at least 1.
  as_tensor fresh_from(int layer) const { return vector_of(find(layer)->fresh_from); }  // i64 [T]
  as_tensor pages_to(int layer) const { return vector_of(find(layer)->pages_to); }      // i64 [T]
  as_tensor places(int layer) const;                                                    // i32 [T,K]
  // Rows that come in, of slots into slots.
  struct Moves {
    std::vector<std::int64_t> from = {}, to = {};
    as_tensor missed_from() const { return vector_of(from); }  // i64 [M]
    as_tensor pool_to() const { return vector_of(to); }        // i64 [M]
  };
  const Moves& all(int layer) const { return find(layer)->all; }
  // Those that fill the pool before its first decode step, and those that the tokens which selected
  // last have missed.
  const Moves& warming(int layer) const { return find(layer)->warming; }
  const Moves& missing(int layer) const { return find(layer)->missing; }
  bool misses(int layer) const { return !find(layer)->step.misses.empty(); }
  // Of the slots where all lies, those that have come in as missed, i32 [T,K]; -1 elsewhere.
  // selected: as select()'s slots. resident: the same without these.
  void split(int layer, const as_tensor& selected, std::vector<std::int32_t>& resident,
             std::vector<std::int32_t>& missed) const;

  // Of the step in progress, a layer that has selected each.
  const std::vector<PoolCounts>& counts() const { return counts_; }

  // The pool of a layer that has selected in this step. published: as select().
  PoolPicture picture(int layer, int published) const;

  // The state is another one than that which filled the pool: its rows once more, from the pages.
  void refill(const Slab& slab, Shadow& shadow) const;

  // The slot of the pool's row in the layer's cache.
  std::int64_t slot_of(std::int32_t place) const {
    return options_.first_block * rows_per_block_ + place;
  }

 private:
  struct TierLayer {
    int layer = -1;
    const CacheSpec* spec = nullptr;
    RowPool pool;
    WarmWindows windows;
    PoolStep step = {};
    std::vector<RowMove> warmed = {};
    std::vector<std::int64_t> new_slots = {}, fresh_from = {}, pages_to = {};
    Moves all = {}, warming = {}, missing = {};
    std::map<HostRow, std::int64_t> slots = {};  // of the rows that were selected, in the pages
    std::vector<std::int32_t> places = {};
    std::int64_t columns = 0;
  };
  const TierLayer* find(int layer) const;
  TierLayer* find(int layer);
  void keep_windows(TierLayer& tier, const as_tensor& indices) const;
  // The moves into places, of which a later one counts; missed: those from here on.
  Moves list_moves(const TierLayer& tier, bool warmed, std::size_t missed) const;
  template <class T>
  static as_tensor vector_of(const std::vector<T>& values) {
    return make_tensor(values.data(), {static_cast<std::int64_t>(values.size())});
  }

  const CacheLayout* layout_;
  HostTierOptions options_;
  std::int32_t rows_per_block_ = 1;
  HostRows rows_;
  std::vector<TierLayer> layers_;
  std::vector<PoolCounts> counts_;
  const StepMetadata* step_ = nullptr;
};

}  // namespace attnscope
