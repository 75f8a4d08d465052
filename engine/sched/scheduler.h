// Requests and the scheduler: first come first served, chunked prefill under a token budget,
// several requests at once; a request is admitted only when its whole demand fits beside what
// admitted requests have reserved, so a running request never runs out of blocks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/cache/block_manager.h"
#include "engine/cache/cache_layout.h"
#include "engine/sched/request.h"

namespace attnscope {

// The requests that take part in a step: running first, then waiting, both in order of arrival, and
// the tokens each one gets. A plain value: copying it is a checkpoint.
class Scheduler {
 public:
  Scheduler() = default;
  Scheduler(const CacheLayout& layout, SchedulerLimits limits, std::int64_t usable_blocks);

  // Gives the request its id; prompt_tokens 0 means all of its tokens.
  void add(Request request);
  const std::vector<Request>& requests() const { return requests_; }  // by id
  Request& request(std::int32_t id) { return requests_[static_cast<std::size_t>(id)]; }

  // Ids of the live requests: running in order of admission, then waiting in order of arrival.
  std::vector<std::int32_t> live() const;
  bool done() const;  // nothing left to compute

  // Blocks a request may need at most.
  std::int64_t demand(const Request& request) const;

  // Tokens for each live request, in live() order; admits waiting ones (their state changes).
  std::vector<std::int32_t> schedule();

  // After the step: advances computed; appends the sampled token of each request that reached its
  // last known token; finishes those that have all their new tokens, or got none to go on with.
  // Returns the finished ids.
  // scheduled, sampled: in the order live() had when schedule() was called; sampled -1 = none.
  std::vector<std::int32_t> advance(const std::vector<std::int32_t>& live,
                                    const std::vector<std::int32_t>& scheduled,
                                    const std::vector<std::int32_t>& sampled);

  // Replaces the requests by those of an earlier scheduler: live in the order live() gave.
  void restore(std::vector<Request> requests, const std::vector<std::int32_t>& live);

  const SchedulerLimits& limits() const { return limits_; }
  std::int64_t usable_blocks() const { return usable_blocks_; }

 private:
  CacheLayout layout_;
  SchedulerLimits limits_;
  std::int64_t usable_blocks_ = 0;
  std::vector<Request> requests_;
  std::vector<std::int32_t> running_;  // ids in order of admission
  std::vector<std::int32_t> waiting_;  // ids in order of arrival
};

}  // namespace attnscope
