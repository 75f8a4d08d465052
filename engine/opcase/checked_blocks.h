// Blocks of a cache that are looked at for bytes that nobody may have written.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "engine/opcase/op_case.h"

namespace attnscope {

// A cache beyond this is address space, most of which nobody ever touches.
inline constexpr std::int64_t kWholeCache = std::int64_t{1} << 30;

inline bool is_whole(const StoredCache& kept) {
  return kept.blocks * kept.page_stride <= kWholeCache;
}

// Calls visit(block, its kept slots) for each block; of larger caches for those with kept slots.
template <class Visit>
void each_checked_block(const StoredCache& kept, const Visit& visit) {
  const std::span<const std::int64_t> slots(kept.slots);  // ascending
  std::size_t next = 0;
  const auto take = [&](std::int64_t block) {
    const std::size_t first = next;
    while (next < slots.size() && slots[next] / kept.rows_per_block == block) ++next;
    visit(block, slots.subspan(first, next - first));
  };
  if (is_whole(kept)) {
    for (std::int64_t block = 0; block < kept.blocks; ++block) take(block);
  } else {
    while (next < slots.size()) take(slots[next] / kept.rows_per_block);
  }
}

}  // namespace attnscope
