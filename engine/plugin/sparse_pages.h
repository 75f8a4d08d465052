// Pages of a region that the file of a plugin's tensors holds; all between are holes.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "engine/plugin/protocol.h"

namespace attnscope {

// Calls visit(from, to), in bytes from the region's first page, for each stretch of pages.
template <class Visit>
void each_extent(int file, const PluginRegion& region, const Visit& visit) {
  const std::int64_t end = region.offset + region.pages * kPluginPage;
  std::int64_t at = region.offset;
  while (at < end) {
    const std::int64_t from = ::lseek(file, at, SEEK_DATA);
    if (from < 0 || from >= end) return;
    const std::int64_t hole = ::lseek(file, from, SEEK_HOLE);
    const std::int64_t to = hole < 0 ? end : std::min(hole, end);
    visit(from - region.offset, to - region.offset);
    at = to;
  }
}

}  // namespace attnscope
