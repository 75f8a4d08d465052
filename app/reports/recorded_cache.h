// A cache of a layer out of what a capture holds: every row that the capture saw written, up to a
// step. Enough for a case of an op that reads it, when the recording began early enough.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <unordered_set>

#include "engine/capture/capture.h"

namespace attnscope {

// Which of a layer's caches a tap of an op is; nullptr where the layer has it not.
const CacheSpec* cache_of_tap(const SessionInfo& info, const Place& place, const std::string& tap);

class RecordedCache {
 public:
  // Rows as they are after this step's writers. layer: published number.
  static Result<RecordedCache> read(const Capture& capture, const CacheSpec& spec, int layer,
                                    std::int64_t step);

  // Its pages, one after the other; bytes of rows that are not known are undefined.
  as_cache cache() const;
  // Whether the row was seen, or is of the null block.
  bool knows(std::int64_t slot) const;

 private:
  explicit RecordedCache(const CacheSpec& spec) : spec_(spec) {}
  void put(const StepTrace& trace, const OpTrace& writer, const char* tap);

  struct Free {
    void operator()(std::uint8_t* p) const { std::free(p); }
  };
  CacheSpec spec_;
  std::int64_t blocks_ = 0;
  std::unique_ptr<std::uint8_t, Free> pages_;
  std::unordered_set<std::int64_t> known_;
};

}  // namespace attnscope
