// Keeps what happened to blocks and requests, newest last, up to a number of events, and finds what
// happened to one block.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "engine/cache/cache_event.h"

namespace attnscope {

class CacheEventLog : public CacheObserver {
 public:
  explicit CacheEventLog(std::size_t most = std::size_t{1} << 20) : most_(most) {}

  void on_event(const CacheEvent& event) override;
  const std::deque<CacheEvent>& events() const { return events_; }
  std::int64_t dropped() const { return dropped_; }  // older than the oldest kept
  std::vector<CacheEvent> of_block(std::int32_t block) const;
  std::vector<CacheEvent> of_request(std::int64_t request) const;

 private:
  std::size_t most_;
  std::deque<CacheEvent> events_;
  std::int64_t dropped_ = 0;
};

// {"step": 3, "event": "free", "reason": "window", "stage": 1, "request": 0, "group": 1, "block":
// 7,
//  "refs": 0}; stage: of an allocation, where it is of one.
std::string event_json(const CacheEvent& event);

}  // namespace attnscope
