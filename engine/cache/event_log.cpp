#include "engine/cache/event_log.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "engine/io/printable.h"

namespace attnscope {

void CacheEventLog::on_event(const CacheEvent& event) {
  if (events_.size() == most_) {
    events_.pop_front();
    ++dropped_;
  }
  events_.push_back(event);
}

std::vector<CacheEvent> CacheEventLog::of_block(std::int32_t block) const {
  std::vector<CacheEvent> out;
  std::copy_if(events_.begin(), events_.end(), std::back_inserter(out),
               [&](const CacheEvent& e) { return e.block == block; });
  return out;
}

std::vector<CacheEvent> CacheEventLog::of_request(std::int64_t request) const {
  std::vector<CacheEvent> out;
  std::copy_if(events_.begin(), events_.end(), std::back_inserter(out),
               [&](const CacheEvent& e) { return e.request == request; });
  return out;
}

std::string event_json(const CacheEvent& event) {
  nlohmann::ordered_json j = {{"step", event.step}, {"event", cache_event_name(event.kind)}};
  if (event.reason != CacheReason::kNone) j["reason"] = cache_reason_name(event.reason);
  if (const AllocationStage stage = allocation_stage(event); stage != AllocationStage::kNone) {
    j["stage"] = static_cast<int>(stage);
  }
  if (event.request >= 0) j["request"] = event.request;
  if (event.group >= 0) j["group"] = event.group;
  if (event.block >= 0) {
    j["block"] = event.block;
    j["refs"] = event.refs;
  }
  if (event.value >= 0) j["value"] = event.value;
  return json_text(j);
}

}  // namespace attnscope
