// A request as the scheduler sees it: what the block manager knows, and where it stands.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/cache/kv_request.h"

namespace attnscope {

enum class RequestStatus {
  kWaiting,
  kRunning,
  kPreempted,  // lost its blocks; waits to be computed again
  kStopped,    // end token or stop token
  kLengthCapped,
  kAborted,
};
const char* request_status_name(RequestStatus status);
inline bool finished(RequestStatus status) { return status >= RequestStatus::kStopped; }

// When a request is over, besides its length.
struct StopRule {
  std::int64_t max_tokens = 0;  // sampled ones
  std::int64_t min_tokens = 0;  // before these nothing stops it
  std::int32_t end_token = -1;  // -1 = none
  bool ignore_end = false;
  std::vector<std::int32_t> stop_tokens;
};

// What a request has of a group in host memory: the blocks of its table behind `nulls` entries that
// no later token sees.
struct SwappedTable {
  std::int64_t nulls = 0;
  std::vector<std::int32_t> blocks;  // of the host
};

struct SchedRequest : KvRequest {
  std::string name;
  std::int64_t priority = 0;  // smaller is more urgent
  double arrival = 0;
  RequestStatus status = RequestStatus::kWaiting;
  StopRule stop;
  std::int32_t stop_reason = -1;  // the stop token that ended it
  std::int64_t drafts = 0;        // draft tokens to compute with the next step
  std::int64_t placeholders = 0;  // tokens that steps in flight will have sampled
  std::int64_t last_step = -1;    // last step that computes for it
  std::int64_t preemptions = 0;
  std::int64_t recomputed = 0;        // tokens computed again after preemptions, hits not counted
  std::int64_t computed_before = 0;   // tokens it had computed when it was preempted
  std::int64_t hit_tokens = 0;        // of its last admission
  std::int64_t swaps = 0;             // preemptions after which its rows lay in host memory
  std::int64_t swapped_tokens = 0;    // whose rows lie there now; 0 = none do
  std::vector<SwappedTable> swapped;  // by group, while they do

  std::int64_t outputs() const { return num_tokens() - prompt_tokens; }
};

}  // namespace attnscope
