#include "engine/session/step/host_tier.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "engine/model/numbers.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

const CacheSpec& selected_rows(const CacheLayout& layout, int layer) {
  return *layout.find(layer, CacheId{});
}

}  // namespace

HostTier::HostTier(const CacheLayout& layout, const std::vector<int>& layers,
                   HostTierOptions options)
    : layout_(&layout), options_(std::move(options)) {
  for (const int layer : layers) {
    const CacheSpec& spec = selected_rows(layout, layer);
    rows_per_block_ = spec.rows_per_block;
    if (layers_.empty()) rows_ = HostRows(spec, options_.prompts);
    layers_.push_back({.layer = layer,
                       .spec = &spec,
                       .pool = RowPool({.rows = options_.rows, .policy = options_.policy}),
                       .windows = WarmWindows(options_.warm)});
  }
}

std::int64_t HostTier::blocks() const {
  return (options_.rows + rows_per_block_ - 1) / rows_per_block_;
}

const HostTier::TierLayer* HostTier::find(int layer) const {
  const auto at = std::ranges::find(layers_, layer, &TierLayer::layer);
  return at == layers_.end() ? nullptr : &*at;
}
HostTier::TierLayer* HostTier::find(int layer) {
  return const_cast<TierLayer*>(std::as_const(*this).find(layer));
}

Result<void> HostTier::begin_step(const StepMetadata& step) {
  step_ = &step;
  counts_.clear();
  rows_.begin_step(step);
  const std::int64_t tokens = step.num_tokens_in_step();
  for (TierLayer& tier : layers_) {
    for (const HostRowRange& gone : rows_.gone()) tier.pool.drop(gone);
    tier.warmed.clear();
    for (std::int64_t r = 0; r < step.num_live(); ++r) {
      if (!rows_.begins(r)) continue;
      for (const auto& entries : tier.windows.take(step.live[to_size(r)])) {
        std::vector<HostRow> warm;
        warm.reserve(entries.size());
        for (const std::int32_t entry : entries) warm.push_back(rows_.row(r, entry));
        const std::vector<RowMove> moves = tier.pool.warm(warm);
        tier.warmed.insert(tier.warmed.end(), moves.begin(), moves.end());
      }
    }
    auto written = tier.pool.write(rows_.written());
    if (!written) return written.error();
    tier.step = std::move(*written);
    // Where they go in the pages the step says.
    const StepTensor* entries = step.entry_slots(tier.spec->tokens_per_row);
    const std::int64_t* pages = tier.spec->tokens_per_row > 1
                                    ? entries->slots.data()
                                    : step.slots.data() + tier.spec->group * tokens;
    tier.new_slots.assign(pages, pages + tokens);
    tier.fresh_from.assign(to_size(tokens), -1);
    tier.pages_to.assign(to_size(tokens), -1);
    std::map<HostRow, std::int32_t> place_of;
    for (const RowMove& made : tier.step.written) place_of[made.row] = made.at;
    for (std::size_t t = 0; t < to_size(tokens); ++t) {
      const HostRow made = rows_.written_by(static_cast<std::int64_t>(t));
      if (made.request < 0) continue;
      tier.fresh_from[t] = slot_of(place_of.at(made));
      tier.pages_to[t] = tier.new_slots[t];
      tier.new_slots[t] = tier.fresh_from[t];
    }
  }
  return {};
}

void HostTier::keep_windows(TierLayer& tier, const as_tensor& indices) const {
  for (std::int64_t r = 0; r < step_->num_live(); ++r) {
    if (rows_.decodes(r)) continue;
    const std::int64_t end = step_->query_start_loc[to_size(r) + 1];
    const std::int64_t begin =
        std::max<std::int64_t>(step_->query_start_loc[to_size(r)], end - options_.warm);
    for (std::int64_t t = begin; t < end; ++t) {
      std::vector<std::int32_t> entries;
      for (std::int64_t k = 0; k < indices.shape[1]; ++k) {
        const std::int32_t entry = *at<std::int32_t>(indices, t, k);
        if (entry >= 0) entries.push_back(entry);
      }
      tier.windows.add(step_->live[to_size(r)], std::move(entries));
    }
  }
}

HostTier::Moves HostTier::list_moves(const TierLayer& tier, bool warmed, std::size_t missed) const {
  std::unordered_map<std::int32_t, std::int64_t> from;  // by place
  if (warmed) {
    for (const RowMove& move : tier.warmed) from[move.at] = rows_.slot(move.row);
    // One whose last row is new is written by whoever makes that.
    for (const RowMove& made : tier.step.written) from.erase(made.at);
  }
  for (std::size_t i = missed; i < tier.step.misses.size(); ++i) {
    const RowMove& move = tier.step.misses[i];
    from[move.at] = tier.slots.at(move.row);
  }
  std::vector<std::int32_t> places;
  places.reserve(from.size());
  for (const auto& [place, slot] : from) places.push_back(place);
  std::ranges::sort(places);
  Moves moves;
  for (const std::int32_t place : places) {
    if (from[place] < 0) continue;
    moves.from.push_back(from[place]);
    moves.to.push_back(slot_of(place));
  }
  if (moves.to.empty()) {
    moves.from.push_back(-1);
    moves.to.push_back(-1);
  }
  return moves;
}

Result<void> HostTier::select(int layer, int published, const as_tensor& indices,
                              const as_tensor& slots, TokenPart tokens) {
  TierLayer& tier = *find(layer);
  tier.columns = indices.shape[1];
  if (tokens.begin == 0) {
    tier.slots.clear();
    tier.places.assign(to_size(indices.shape[0] * tier.columns), -1);
  }
  const auto each = [&](const auto& visit) {
    for (std::int64_t t = tokens.begin; t < tokens.end; ++t) {
      const std::int32_t r = step_->token_to_req[to_size(t)];
      if (r < 0 || !rows_.decodes(r)) continue;
      for (std::int64_t k = 0; k < tier.columns; ++k) {
        const std::int32_t entry = *at<std::int32_t>(indices, t, k);
        if (entry >= 0) visit(t, k, rows_.row(r, entry));
      }
    }
  };
  std::map<HostRow, std::int32_t> place_of;
  each([&](std::int64_t t, std::int64_t k, const HostRow& row) {
    place_of[row] = -1;
    tier.slots[row] = *at<std::int32_t>(slots, t, k);
  });
  std::vector<HostRow> selected;
  selected.reserve(place_of.size());
  for (const auto& [row, place] : place_of) selected.push_back(row);
  const std::size_t had = tier.step.at.size(), missed = tier.step.misses.size();
  if (auto ok = tier.pool.select(selected, tier.step); !ok) return ok;
  for (std::size_t i = 0; i < selected.size(); ++i) place_of[selected[i]] = tier.step.at[had + i];
  each([&](std::int64_t t, std::int64_t k, const HostRow& row) {
    tier.places[to_size(t * tier.columns + k)] =
        static_cast<std::int32_t>(slot_of(place_of.at(row)));
  });
  tier.missing = list_moves(tier, false, missed);
  if (tokens.begin == 0) tier.warming = list_moves(tier, true, tier.step.misses.size());
  if (tokens.end < indices.shape[0]) return {};
  keep_windows(tier, indices);
  tier.all = list_moves(tier, true, 0);
  const PoolStep& done = tier.step;
  counts_.push_back({published, std::ssize(done.hits), std::ssize(done.misses),
                     std::ssize(done.written), std::ssize(done.evictions),
                     std::ssize(tier.warmed)});
  return {};
}

void HostTier::split(int layer, const as_tensor& selected, std::vector<std::int32_t>& resident,
                     std::vector<std::int32_t>& missed) const {
  const TierLayer& tier = *find(layer);
  std::unordered_set<std::int32_t> came;
  for (const RowMove& move : tier.step.misses) {
    came.insert(static_cast<std::int32_t>(slot_of(move.at)));
  }
  resident.assign(tier.places.size(), -1);
  missed.assign(tier.places.size(), -1);
  for (std::size_t i = 0; i < tier.places.size(); ++i) {
    const std::int32_t place = tier.places[i];
    if (place < 0) {
      resident[i] =
          *at<std::int32_t>(selected, to_count(i) / tier.columns, to_count(i) % tier.columns);
    } else {
      (came.contains(place) ? missed : resident)[i] = place;
    }
  }
}

PoolPicture HostTier::picture(int layer, int published) const {
  const TierLayer& tier = *find(layer);
  PoolPicture picture{published, std::vector<PoolPlace>(to_size(options_.rows))};
  std::int32_t age = 0;
  for (const RowMove& held : tier.pool.by_age()) {
    picture.places[to_size(held.at)] = {held.row.request, held.row.row, age++,
                                        PoolPlace::What::kIdle};
  }
  const auto mark = [&](const std::vector<RowMove>& moves, PoolPlace::What what) {
    for (const RowMove& move : moves) picture.places[to_size(move.at)].what = what;
  };
  mark(tier.step.hits, PoolPlace::What::kHit);
  mark(tier.step.misses, PoolPlace::What::kMissed);
  mark(tier.step.written, PoolPlace::What::kNew);
  return picture;
}

as_tensor HostTier::slots(int layer) const { return vector_of(find(layer)->new_slots); }
as_tensor HostTier::places(int layer) const {
  const TierLayer& tier = *find(layer);
  return make_tensor(tier.places.data(),
                     {to_count(tier.places.size()) / tier.columns, tier.columns});
}

void HostTier::refill(const Slab& slab, Shadow& shadow) const {
  for (const TierLayer& tier : layers_) {
    const as_cache cache = slab.cache(*tier.spec);
    for (const RowMove& held : tier.pool.by_age()) {
      const std::int64_t from = rows_.slot(held.row);
      if (from < 0) continue;
      static_cast<void>(slab.block(from / rows_per_block_));
      static_cast<void>(slab.block(slot_of(held.at) / rows_per_block_));
      as_row_copy(&cache, from, &cache, slot_of(held.at));
      shadow.copied(*tier.spec, from, slot_of(held.at));
    }
  }
}

}  // namespace attnscope
