// Decides step by step which requests compute how many tokens, and preempts where blocks run out.
//
//     running, in order of admission -> each its next tokens; no blocks: preempt the last one
//                                       (or the least urgent), which is computed anew later, or
//                                       whose blocks lie in host memory until it comes back
//     waiting, head first            -> lookup, admission; the head that does not fit stops it
//
// schedule() counts tokens as computed at once: it may be called again before results() are in.
// A plain value: copying it is a checkpoint.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/cache/kv_manager.h"
#include "engine/sched/drafter.h"
#include "engine/sched/host_blocks.h"
#include "engine/sched/request_queue.h"
#include "engine/sched/sched_request.h"

namespace attnscope {

// Tokens of one prefill in a step, by how much of the pool is free before it: `most` where all of
// it is, `least` where nothing is, in between in proportion, rounded down. Large chunks are few;
// small ones ask for few blocks at once.
struct AdaptiveChunks {
  std::int64_t least = 0;
  std::int64_t most = 0;  // 0 = chunks are as long as the budget lets them
  bool on() const { return most > 0; }
};

struct SchedulerOptions {
  KvOptions kv;  // cap_tokens is filled in from the budget
  std::int64_t token_budget = 2048;
  std::int64_t max_requests = 128;  // running at once
  SchedulePolicy policy = SchedulePolicy::kFcfs;
  bool whole_sequence = true;  // admit only what fits with all its known tokens
  bool chunked_prefill = true;
  std::int64_t prefill_threshold = 0;  // most tokens of one prefill in a step; 0 = no limit
  AdaptiveChunks chunks;               // in its place
  // Blocks of host memory for the rows of preempted requests. A request whose blocks find no room
  // there is computed anew; 0 = all are.
  std::int64_t swap_blocks = 0;
  std::int64_t lookahead = 0;        // extra tokens of room with every allocation
  std::int64_t steps_in_flight = 1;  // steps that may be scheduled before the first one's results
  bool outside_writer = false;       // others write into blocks of steps in flight
  bool keep_finished = false;  // finished requests stay readable; their slots are not used again
  DraftOptions drafts;         // of a session; the scheduler is told by set_drafts()
};

// Fills in what depends on the rest. AS_BAD_INPUT names the option, what it is and what is allowed.
Result<SchedulerOptions> check_options(SchedulerOptions options);

struct ScheduledTokens {
  std::int32_t slot = -1;
  std::int64_t id = -1;
  std::int64_t tokens = 0;
  bool admitted = false;  // in this step, for the first time or again
};

// A block whose rows go to host memory, or come from there, before anything is computed in a step.
struct SwapMove {
  std::int64_t request = -1;
  std::int32_t group = -1;
  std::int32_t index = -1;  // entry of the request's table
  std::int32_t block = -1;
  std::int32_t host = -1;  // block of the host
  friend bool operator==(const SwapMove&, const SwapMove&) = default;
};

struct StepPlan {
  std::int64_t step = -1;
  std::vector<ScheduledTokens> scheduled;   // in the order decided
  std::vector<std::int64_t> preempted;      // ids
  std::vector<std::int64_t> preempted_for;  // by entry of `preempted`: who needed the blocks
  // A step has either, never both: one that preempts admits nobody.
  std::vector<SwapMove> swapped_out, swapped_in;
  std::int64_t chunk = 0;        // most tokens of one prefill in this step; 0 = no limit
  std::int64_t free_before = 0;  // blocks, before the step
  std::int64_t total_tokens = 0;
  // By group: leading blocks that all who hold a table there share (KvManager::common_prefix); 0
  // while nobody runs.
  std::vector<std::int64_t> common_prefix;
};

struct SchedulerCounters {
  std::int64_t lookups = 0;     // repeated ones of a blocked head included
  std::int64_t hit_tokens = 0;  // of all these
  std::int64_t failed_allocations = 0;
  std::int64_t preemptions = 0;
  std::int64_t aborted = 0;
  std::int64_t scheduled_tokens = 0;
  std::int64_t recomputed_tokens = 0;
  std::int64_t blocks_out = 0, blocks_in = 0;  // to host memory, and from there
  std::int64_t swaps_refused = 0;              // preemptions that found no room there
};

// Prefix cache use as the engine reports it: lookups once per admission or once per lookup.
struct PrefixStats {
  std::int64_t requests = 0, queries = 0, hits = 0;
  std::int64_t preempted_requests = 0, preempted_queries = 0, preempted_hits = 0;
};

inline constexpr std::int32_t kNoToken = std::numeric_limits<std::int32_t>::min();

class BlockScheduler {
 public:
  static Result<BlockScheduler> make(const SchedulerOptions& options);

  // id, tokens and stop rule are the caller's. AS_BAD_INPUT: an id in use, no token, a prompt as
  // long as the model's limit.
  Result<void> add(SchedRequest request);
  const StepPlan& schedule();
  // What the step sampled, one entry per scheduled request; kNoToken = nothing.
  void results(const StepPlan& plan, std::span<const std::int32_t> sampled);
  // The same with several tokens each, drafts accepted among them.
  void results(const StepPlan& plan, const std::vector<std::vector<std::int32_t>>& sampled);
  // Draft tokens to compute with the request's next token; nothing for one still in its prompt.
  void set_drafts(std::int64_t id, std::int64_t drafts);
  // False for an id that is not alive.
  bool abort(std::int64_t id);
  // False while blocks are held. preempt_running: takes them from the running requests first.
  bool reset_prefix_cache(bool preempt_running = false);

  bool alive(std::int64_t id) const { return slot_of_.contains(id); }
  bool done() const { return slot_of_.empty(); }
  const SchedRequest* find(std::int64_t id) const;  // alive; nullptr = not
  SchedRequest* find(std::int64_t id);
  const SchedRequest& request(std::int32_t slot) const {
    return requests_[static_cast<std::size_t>(slot)];
  }
  const std::vector<std::int32_t>& running() const { return running_; }  // slots
  std::vector<std::int32_t> waiting() const { return waiting_.slots(); }
  // Ids that results() or abort() finished since the last call.
  std::vector<std::int64_t> take_finished() { return std::exchange(finished_, {}); }

  const SchedulerOptions& options() const { return options_; }
  const HostBlocks& host_blocks() const { return host_; }
  const KvManager& kv() const { return kv_; }
  KvManager& kv() { return kv_; }
  const SchedulerCounters& counters() const { return counters_; }
  const PrefixStats& prefix_stats() const { return stats_; }
  std::int64_t step() const { return step_; }  // the next one to be scheduled
  // Blocks that wait for steps in flight before they are free.
  struct Deferred {
    std::int64_t fence = 0;  // step whose results free them
    std::vector<std::int32_t> blocks;
  };
  const std::deque<Deferred>& deferred() const { return deferred_; }

 private:
  explicit BlockScheduler(const SchedulerOptions& options);

  SchedRequest& at(std::int32_t slot) { return requests_[static_cast<std::size_t>(slot)]; }
  void schedule_running(std::int64_t& budget);
  void schedule_waiting(std::int64_t& budget);
  bool admit_head(std::int64_t& budget);
  std::size_t choose_victim() const;
  // may_swap: the blocks may go to host memory, in this step.
  void preempt(std::int32_t slot, bool may_swap);
  // False, with nothing changed, where there is nothing to keep or no room for it.
  bool swap_out(SchedRequest& request);
  // It has got blocks for what it has in host memory.
  void swap_in(SchedRequest& request);
  void forget_swapped(SchedRequest& request);
  std::int64_t chunk_limit() const;
  void tell_chunk();
  void give_back(SchedRequest& request, CacheReason reason);
  void plan_tokens(const SchedRequest& request, std::int64_t tokens, bool admitted);
  std::int64_t unplan(std::int32_t slot);
  void take_result(const ScheduledTokens& scheduled, std::span<const std::int32_t> tokens);
  bool check_stop(SchedRequest& request) const;
  void finish(SchedRequest& request);
  void close_finished();
  void processed(std::int64_t step);
  void count_lookup(const SchedRequest& request, std::int64_t hit);
  void tell(CacheEventKind kind, const SchedRequest& request, CacheReason reason,
            std::int64_t value);

  SchedulerOptions options_;
  KvManager kv_;
  std::vector<SchedRequest> requests_;  // by slot
  std::unordered_map<std::int64_t, std::int32_t> slot_of_;
  std::vector<std::int32_t> running_;
  RequestQueue waiting_;
  HostBlocks host_;
  StepPlan plan_;
  SchedulerCounters counters_;
  PrefixStats stats_;
  std::deque<Deferred> deferred_;
  std::vector<std::int64_t> finished_;
  std::int64_t step_ = 0;
  std::int64_t processed_ = -1;        // last step whose results are in
  std::vector<std::int32_t> closing_;  // slots of requests that have just finished
};

}  // namespace attnscope
