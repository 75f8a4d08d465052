// Who holds a block, and what it holds: for maps and for blame.
#pragma once

#include <cstdint>

namespace attnscope {

// A block may have several holders, all at the same entry of their tables: `request` is the one
// that was admitted first. A free block that keeps its key can still be hit: nobody holds it, and
// group, index and writer say what its rows are.
struct BlockOwner {
  std::int32_t request = -1;  // a holder; -1 = free (or null)
  std::int32_t group = -1;
  std::int32_t index = -1;   // entry of the table
  std::int32_t refs = 0;     // holders
  std::int32_t writer = -1;  // request whose tokens its rows were computed from; -1 = no content
  bool keyed = false;        // can be found by a lookup

  friend bool operator==(const BlockOwner&, const BlockOwner&) = default;
};

// One key of a block: what a lookup of this content finds it by.
struct BlockKey {
  std::int32_t block = -1;
  std::int32_t group = -1;
  std::uint64_t hash = 0;    // the low half of the hash chain at the end of the content
  std::int32_t writer = -1;  // request whose first `tokens` tokens the key stands for
  std::int64_t tokens = 0;
  bool prompt_end = false;  // of a prompt's end inside the block, not of a full block
};

// Blocks of the pool by what they are; sums to its size.
struct PoolUsage {
  std::int64_t held = 0;        // by requests
  std::int64_t free_keyed = 0;  // free, and still found by lookups
  std::int64_t free_empty = 0;
  std::int64_t null = 0;  // the null block
};

}  // namespace attnscope
