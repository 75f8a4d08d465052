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

}  // namespace attnscope
