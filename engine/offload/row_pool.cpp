#include "engine/offload/row_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

namespace attnscope {

const char* pool_policy_name(PoolPolicy policy) {
  return policy == PoolPolicy::kLru ? "lru" : "fifo";
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

void RowPool::warm(std::span<const HostRow> rows) {
  std::vector<RowMove> evictions;
  for (const HostRow& row : rows) {
    ++step_;
    const std::int32_t at = find(row);
    if (at >= 0) {
      use(at);
    } else {
      take(row, evictions);
    }
  }
}

Result<PoolStep> RowPool::step(std::span<const HostRow> written,
                               std::span<const HostRow> selected) {
  std::unordered_set<std::uint64_t> needed;
  for (const HostRow& row : written) needed.insert(key(row));
  for (const HostRow& row : selected) needed.insert(key(row));
  if (needed.size() > places_.size()) {
    return bad_input(
        fmt::format("a pool of {} rows is too small for a step that needs {} at once",
                    places_.size(), needed.size()),
        fmt::format("give it a larger share of the rows, or at least {} of them", needed.size()));
  }
  ++step_;
  PoolStep out;
  out.at.reserve(selected.size());
  // What is there is needed before anything makes room.
  for (const HostRow& row : selected) {
    const std::int32_t at = find(row);
    if (at < 0 || place(at).needed == step_) continue;
    if (std::ranges::find(written, row) != written.end()) continue;
    use(at);
    out.hits.push_back({row, at});
  }
  for (const HostRow& row : written) {
    std::int32_t at = find(row);
    if (at < 0) {
      at = take(row, out.evictions);
    } else {
      use(at);
    }
    out.written.push_back({row, at});
  }
  for (const HostRow& row : selected) {
    std::int32_t at = find(row);
    if (at < 0) {
      at = take(row, out.evictions);
      out.misses.push_back({row, at});
    }
    out.at.push_back(at);
  }
  return out;
}

void RowPool::drop(std::int32_t request) {
  for (std::int32_t at = oldest_; at >= 0;) {
    const std::int32_t next = place(at).newer;
    if (place(at).row.request == request) {
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
