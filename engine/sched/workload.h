// A generated workload: a whole engine's step loop from a handful of parameters, with digests of
// every table in every step. Two engines that agree on the digests agree on every block id.
//
// Random numbers: x <- x * 6364136223846793005 + 1442695040888963407 (mod 2^64), output x >> 33,
// starting at the seed. Per request i, in this order: family = r % 4, shared = (r % 5) * S,
// tail = 1 + r % T, outputs = 1 + r % O, gap = r % 3, aborted = (r % 8 == 0), priority = r % 3.
// Request 0 arrives at step 0, each other `gap` steps after the one before. Prompt token at p:
// (family + 1) * 100000 + p where p < shared, else (i + 1) * 1000000 + p. Output token k:
// 7000000 + i * 1000 + k. With dup U the tail is U * (1 + r % T) long and every prompt token is the
// family's. Tokens are taken modulo 2^32; only equality of tokens matters.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/sched/block_scheduler.h"
#include "engine/sched/sched_watch.h"

namespace attnscope {

struct Workload {
  std::string name;
  CacheProfile profile = CacheProfile::kM;
  SchedulerOptions options;  // switches are those of the profile and what differs from it
  std::uint64_t seed = 1;
  std::int64_t requests = 0;        // N
  std::int64_t shared_unit = 0;     // S
  std::int64_t tail_range = 1;      // T
  std::int64_t output_range = 1;    // O
  std::int64_t duplicate_unit = 0;  // U; 0 = off
};

struct GeneratedRequest {
  std::int64_t family = 0, shared = 0, tail = 0, outputs = 0;
  std::int64_t arrival_step = 0;
  bool aborted = false;  // five steps after its arrival, if it is alive then
  std::int64_t priority = 0;
};
std::vector<GeneratedRequest> generate_requests(const Workload& workload);
SchedRequest make_request(const Workload& workload, std::int64_t i, const GeneratedRequest& g);
std::int32_t output_token(std::int64_t request, std::int64_t k);

// FNV-1a, 64 bits, over little-endian 32-bit words.
class Digest {
 public:
  void word(std::uint32_t w);
  void zeros(std::int64_t n);  // n words of 0
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325;
};

struct WorkloadResult {
  std::int64_t steps = 0;
  std::uint64_t final_digest = 0;
  std::uint64_t queue_digest = 0;  // of the free queue at the end, front first
  std::int64_t hit_tokens = 0, lookups = 0, failed_allocations = 0, preemptions = 0;
  std::int64_t evictions = 0, aborted = 0, scheduled_tokens = 0, recomputed_tokens = 0;
  std::int64_t min_free = 0;                          // after a step was scheduled
  std::int64_t max_keys = 0;                          // of the prefix map, likewise
  std::map<std::int64_t, std::uint64_t> checkpoints;  // running digest after these steps
  // Of steps in which two requests or more ran, those in which all shared leading blocks, and the
  // most blocks of a group that they shared.
  std::int64_t common_steps = 0, most_common = 0;
  std::int64_t blocks_out = 0, blocks_in = 0;    // to host memory and from there
  std::int64_t swaps_refused = 0;                // preemptions that found no room there
  std::int64_t most_host_blocks = 0;             // held at once
  std::int64_t least_chunk = 0, most_chunk = 0;  // that steps allowed, where chunks are adaptive
  std::int64_t final_free = 0;
  bool complete = true;  // nobody ended it before its end
};

struct WorkloadRun {
  bool digests = true;
  // Makes what watches the loop; once it does not want to go on, the run ends.
  std::function<std::shared_ptr<SchedWatch>(BlockScheduler&)> watch;
  std::function<bool()> stopped = {};  // asked after every step; true ends the run
};
Result<WorkloadResult> run_workload(const Workload& workload, const WorkloadRun& run = {});

}  // namespace attnscope
