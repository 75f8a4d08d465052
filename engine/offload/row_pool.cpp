#include "engine/offload/row_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

namespace attnscope {

const char* pool_policy_name(PoolPolicy policy) {
  return policy == PoolPolicy::kLru ? "lru" : "fifo";
}

std::int64_t pool_rows(double ratio, std::int64_t rows) {
  return std::max<std::int64_t>(1, std::llround(ratio * static_cast<double>(rows)));
}

RowPool::RowPool(const PoolOptions& options)
    : policy_(options.policy), places_(static_cast<std::size_t>(options.rows)) {
  for (std::int64_t i = options.rows; i-- > 0;) free_.push_back(static_cast<std::int32_t>(i));
}

std::int32_t RowPool::find(const HostRow& row) const {
  const auto it = place_of_.find(key(row));
  return it == place_of_.end() ? -1 : it->second;
}

void RowPool::unlink(std::int32_t at) {
  const RowPlace& gone = place(at);
  (gone.older < 0 ? oldest_ : place(gone.older).newer) = gone.newer;
  (gone.newer < 0 ? newest_ : place(gone.newer).older) = gone.older;
}

void RowPool::link_newest(std::int32_t at) {
  place(at).older = newest_;
  place(at).newer = -1;
  (newest_ < 0 ? oldest_ : place(newest_).newer) = at;
  newest_ = at;
}

void RowPool::use(std::int32_t at) {
  place(at).needed = step_;
  if (policy_ == PoolPolicy::kFifo) return;
  unlink(at);
  link_newest(at);
}

// A place for a row that has none: a free one, or that of the oldest row the step does not need.
std::int32_t RowPool::take(const HostRow& row, std::vector<RowMove>& evictions) {
  std::int32_t at = -1;
  if (!free_.empty()) {
    at = free_.back();
    free_.pop_back();
  } else {
    for (at = oldest_; at >= 0 && place(at).needed == step_;) at = place(at).newer;
    if (at < 0) return -1;
    evictions.push_back({place(at).row, at});
    place_of_.erase(key(place(at).row));
    unlink(at);
  }
  place(at).row = row;
  place(at).needed = step_;
  place_of_.emplace(key(row), at);
  link_newest(at);
  return at;
}

std::vector<RowMove> RowPool::warm(std::span<const HostRow> rows) {
  std::vector<RowMove> evictions, moves;
  for (const HostRow& row : rows) {
    ++step_;
    const std::int32_t at = find(row);
    if (at >= 0) {
      use(at);
    } else {
      moves.push_back({row, take(row, evictions)});
    }
  }
  return moves;
}

Result<void> RowPool::fits(std::size_t needed) const {
  if (needed <= places_.size()) return {};
  return bad_input(
      fmt::format("a pool of {} rows is too small for a step that needs {} at once", places_.size(),
                  needed),
      fmt::format("give it a larger share of the rows, or at least {} of them", needed));
}

Result<PoolStep> RowPool::write(std::span<const HostRow> written) {
  if (auto ok = fits(written.size()); !ok) return ok.error();
  ++step_;
  PoolStep out;
  for (const HostRow& row : written) {
    if (const std::int32_t at = find(row); at >= 0) use(at);
  }
  for (const HostRow& row : written) {
    const std::int32_t at = find(row);
    out.written.push_back({row, at >= 0 ? at : take(row, out.evictions)});
  }
  return out;
}

Result<void> RowPool::select(std::span<const HostRow> selected, PoolStep& step) {
  std::unordered_set<std::uint64_t> needed;
  for (const auto* moves : {&step.written, &step.hits, &step.misses}) {
    for (const RowMove& move : *moves) needed.insert(key(move.row));
  }
  for (const HostRow& row : selected) needed.insert(key(row));
  if (auto ok = fits(needed.size()); !ok) return ok;
  step.at.reserve(step.at.size() + selected.size());
  // What is there is needed before anything makes room.
  for (const HostRow& row : selected) {
    const std::int32_t at = find(row);
    if (at < 0 || place(at).needed == step_) continue;
    use(at);
    step.hits.push_back({row, at});
  }
  for (const HostRow& row : selected) {
    std::int32_t at = find(row);
    if (at < 0) {
      at = take(row, step.evictions);
      step.misses.push_back({row, at});
    }
    step.at.push_back(at);
  }
  return {};
}

Result<PoolStep> RowPool::step(std::span<const HostRow> written,
                               std::span<const HostRow> selected) {
  std::unordered_set<std::uint64_t> needed;
  for (const HostRow& row : written) needed.insert(key(row));
  for (const HostRow& row : selected) needed.insert(key(row));
  if (auto ok = fits(needed.size()); !ok) return ok.error();
  auto out = write(written);
  if (auto ok = select(selected, *out); !ok) return ok.error();
  return out;
}

void RowPool::drop(const HostRowRange& gone) {
  for (std::int32_t at = oldest_; at >= 0;) {
    const std::int32_t next = place(at).newer;
    if (gone.holds(place(at).row)) {
      place_of_.erase(key(place(at).row));
      unlink(at);
      free_.push_back(at);
    }
    at = next;
  }
}

std::vector<RowMove> RowPool::by_age() const {
  std::vector<RowMove> rows;
  for (std::int32_t at = oldest_; at >= 0; at = places_[static_cast<std::size_t>(at)].newer) {
    rows.push_back({places_[static_cast<std::size_t>(at)].row, at});
  }
  return rows;
}

}  // namespace attnscope
