// Which rows of a layer lie on the device when all of them lie in host memory: the policy of a
// pool, without any bytes. Whoever moves bytes does what a step's answer says; a simulator counts
// it. One decision, so that both tell of the same hits and misses.
//
//   RowPool pool({.rows = 512, .policy = PoolPolicy::kLru});
//   pool.warm(selected_in_prefill);                    // the last ones stay
//   auto step = pool.write(new_rows);                  // of one decode step: before it selects
//   pool.select(selected, *step);
//   for (const RowMove& m : step->misses) ..           // host row m.row -> pool row m.at
//
// LRU evicts the row whose last use is longest ago, FIFO the one that came in first. Rows that the
// step itself needs are never evicted by it, but by new rows, which have their place before anybody
// knows what is selected.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernels/params/result.h"

namespace attnscope {

enum class PoolPolicy { kLru, kFifo };
const char* pool_policy_name(PoolPolicy policy);  // "lru", "fifo"

// A row of a request's cache of one layer: its number among the request's own. Of a row that
// requests share the request is the one that made it.
struct HostRow {
  std::int32_t request = 0;
  std::int32_t row = 0;
  friend bool operator==(const HostRow&, const HostRow&) = default;
  friend auto operator<=>(const HostRow&, const HostRow&) = default;
};

// Rows of a request, one after another.
struct HostRowRange {
  std::int32_t request = 0, first = 0, rows = 0;
  bool holds(const HostRow& row) const {
    return row.request == request && row.row >= first && row.row - first < rows;
  }
};

// A host row and its place in the pool.
struct RowMove {
  HostRow row;
  std::int32_t at = -1;
  friend bool operator==(const RowMove&, const RowMove&) = default;
};

// What one step does to a pool, in the order in which it is decided.
struct PoolStep {
  std::vector<RowMove> hits;       // selected and resident, each once
  std::vector<RowMove> misses;     // selected and not resident: to be gathered from the host
  std::vector<RowMove> written;    // new rows: made on the device, to be written back to the host
  std::vector<RowMove> evictions;  // that gave up their place, which another row takes in this step
  std::vector<std::int32_t> at;    // place of each selected row, in the order of the list
};

// Rows of a pool that is to hold this share of so many; at least one.
std::int64_t pool_rows(double ratio, std::int64_t rows);

struct PoolOptions {
  std::int64_t rows = 0;  // of the pool
  PoolPolicy policy = PoolPolicy::kLru;
};

class RowPool {
 public:
  explicit RowPool(const PoolOptions& options);

  // Brings rows in before decode starts, one after the other; what does not fit makes room as in a
  // step. Nothing is counted. Returns what came in, in that order: a later one may have the place
  // of an earlier one.
  std::vector<RowMove> warm(std::span<const HostRow> rows);
  // A step begins: rows that it makes, whether it selects them or not, each once.
  // AS_BAD_INPUT, and nothing changes, where the pool has fewer rows.
  Result<PoolStep> write(std::span<const HostRow> written);
  // .. and what it selects, which may name a row more than once, which counts once; one that the
  // step writes is neither hit nor miss. A batch that selects half by half calls it once for each:
  // the second half finds what the first one has left. AS_BAD_INPUT where the pool has fewer rows
  // than the step needs at once.
  Result<void> select(std::span<const HostRow> selected, PoolStep& step);
  // Both.
  Result<PoolStep> step(std::span<const HostRow> written, std::span<const HostRow> selected);
  // They are no rows any more: those that are here leave, nothing is written back.
  void drop(const HostRowRange& gone);

  std::int64_t rows() const { return static_cast<std::int64_t>(places_.size()); }
  std::int64_t resident() const { return static_cast<std::int64_t>(place_of_.size()); }
  bool holds(const HostRow& row) const { return place_of_.contains(key(row)); }
  // Resident rows with their places, the next to be evicted first.
  std::vector<RowMove> by_age() const;

 private:
  struct RowPlace {
    HostRow row;
    std::int32_t older = -1, newer = -1;  // in the order of eviction
    std::int64_t needed = -1;             // by this step
  };
  static std::uint64_t key(const HostRow& row) {
    return std::uint64_t{static_cast<std::uint32_t>(row.request)} << 32 |
           static_cast<std::uint32_t>(row.row);
  }
  RowPlace& place(std::int32_t at) { return places_[static_cast<std::size_t>(at)]; }
  std::int32_t find(const HostRow& row) const;
  void unlink(std::int32_t at);
  void link_newest(std::int32_t at);
  void use(std::int32_t at);
  std::int32_t take(const HostRow& row, std::vector<RowMove>& evictions);
  Result<void> fits(std::size_t needed) const;

  PoolPolicy policy_;
  std::vector<RowPlace> places_;
  std::vector<std::int32_t> free_;  // the last one is taken first
  std::unordered_map<std::uint64_t, std::int32_t> place_of_;
  std::int32_t oldest_ = -1, newest_ = -1;
  std::int64_t step_ = 0;
};

}  // namespace attnscope
