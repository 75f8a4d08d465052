// What a step did to the pool of rows of one layer, where its rows lie in host memory.
#pragma once

#include <cstdint>
#include <vector>

namespace attnscope {

struct PoolCounts {
  int layer = -1;  // published
  std::int64_t hits = 0, misses = 0;
  std::int64_t written = 0;    // new rows, which went back to the host
  std::int64_t evictions = 0;  // of them all
  std::int64_t warmed = 0;     // brought in before the first step of a request, not counted above
  friend bool operator==(const PoolCounts&, const PoolCounts&) = default;
};

// A place of a layer's pool once the layer has selected.
struct PoolPlace {
  enum class What : std::uint8_t { kFree, kIdle, kHit, kMissed, kNew };
  std::int32_t request = -1, row = -1;  // that it holds; -1 = none
  std::int32_t age = -1;                // 0 = the next to leave
  What what = What::kFree;
};

struct PoolPicture {
  int layer = -1;  // published
  std::vector<PoolPlace> places;
};

}  // namespace attnscope
