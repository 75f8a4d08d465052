// How the rows of one request are dealt out over ranks under context parallelism: tokens go round
// the ranks in runs of `interleave`, so that all ranks have as many rows, give or take a run,
// however long the request is.
//
//   ContextSplit split{4, 2};   // positions 0 1 | 2 3 | 4 5 | 6 7 | 8 9 are of ranks 0 1 2 3 0
//   split.owner(5) == 2;        split.row(5) == 1;      split.length(0, 9) == 3;
//
// A block of the manager is whole rounds of the ranks. Each rank has its part of every block as a
// page of its own, under the same id: one table of blocks serves all ranks.
//
// Entries that stand for several tokens go round in the same way, counted as entries: positions
// below are numbers of rows of a request, whatever these are.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/cache/cache_layout.h"
#include "kernels/params/tensor.h"

namespace attnscope {

inline constexpr int kMostContextRanks = 8;

struct ContextSplit {
  int ranks = 1;
  int interleave = 1;  // tokens that follow one another on a rank

  bool splits() const { return ranks > 1; }
  std::int64_t round() const { return std::int64_t{ranks} * interleave; }
  int owner(std::int64_t position) const { return static_cast<int>(position / interleave % ranks); }
  // The owner's row of a position, counted from the request's first one there.
  std::int64_t row(std::int64_t position) const {
    return position / round() * interleave + position % interleave;
  }
  std::int64_t position(int rank, std::int64_t row) const {
    return row / interleave * round() + std::int64_t{rank} * interleave + row % interleave;
  }
  // Rows that a rank has of a request's first `tokens`: those below a position that it sees, too.
  std::int64_t length(int rank, std::int64_t tokens) const;

  friend bool operator==(const ContextSplit&, const ContextSplit&) = default;
};

// Whether all blocks of rows that are dealt out are whole rounds; says which is not, and what is
// allowed.
Result<void> check_split(const CacheLayout& layout, const ContextSplit& split);

// The caches as each rank has them: of every page its part. No cache is another one's peer.
CacheLayout rank_layout(CacheLayout layout, const ContextSplit& split);

// By rank: where each token of a step goes there, -1 where it is another rank's, or padding.
// table: i32 [R,C] of a group whose blocks have so many tokens. tokens_per_row: of entries, which
// the last of their tokens writes.
using RankSlots = std::vector<std::vector<std::int64_t>>;
RankSlots rank_slots(const ContextSplit& split, const std::vector<std::int64_t>& positions,
                     const std::vector<std::int32_t>& token_to_req, const as_tensor& table,
                     int block_tokens, int tokens_per_row = 1);

}  // namespace attnscope
