// The requests of a session on the block scheduler: who arrives and is taken away when, what each
// step's plan means for them, whose rows every block holds.
//
//   begin_step(s) -> schedule() -> the rows are computed -> finish_step(sampled)
//
// A plain value: copying it is a checkpoint. All that it does follows from the requests and from
// what they sampled, so a state is rebuilt by going through the steps again without computing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/cache/block_owner.h"
#include "engine/cache/cache_event.h"
#include "engine/sched/block_scheduler.h"
#include "engine/sched/drafter.h"
#include "engine/sched/explain.h"
#include "engine/sched/request.h"

namespace attnscope {

// Rows that an admitted request found computed, one block's worth: entry `index` of its table in
// `group` is `block`, whose rows `donor` has written or writes in this very step.
struct SharedBlock {
  std::int32_t request = -1;
  std::int32_t donor = -1;
  std::int32_t group = -1;
  std::int32_t index = -1;
  std::int32_t block = -1;
  bool this_step = false;  // not all of its rows are written yet
};

// What one step does with the live requests; rows in the order of live().
struct ServingStep {
  std::vector<std::int32_t> num_computed;  // position of the first token of the step
  std::vector<std::int32_t> num_scheduled_tokens;
  // 1 = admitted by this step; 2 = the same, with its own rows back from host memory.
  std::vector<std::int32_t> joins;
  std::vector<std::int32_t> lost_to;  // row in whose favour it was preempted; -1 = it was not
  // Leading tokens equal to those behind the blocks it found; of one whose rows come back: those of
  // its own that they hold.
  std::vector<std::int32_t> matching;
  std::vector<SharedBlock> shared;
  // By row: why a newcomer's lookup found no more; nullopt = no newcomer, or nobody looked.
  std::vector<std::optional<MissReport>> misses;
  std::vector<std::int32_t> fresh;   // blocks taken for new content, ascending
  std::vector<BlockOwner> replaced;  // by entry of fresh: what the block held before
};

// Over all steps so far.
struct ServingTotals {
  std::int64_t hits = 0;        // admissions that found rows computed
  std::int64_t hit_tokens = 0;  // of these
  std::int64_t preemptions = 0;
  std::int64_t recomputed = 0;  // tokens computed again after preemptions
  std::int64_t aborted = 0;
  std::int64_t tokenless = 0;                  // of these: no token could be sampled to go on with
  std::int64_t blocks_out = 0, blocks_in = 0;  // of preempted ones, to host memory and back
  std::int64_t swaps_refused = 0;              // preemptions that found no room there
  std::int64_t drafted = 0;                    // tokens verified
  std::int64_t accepted = 0;                   // of these
};

class Serving {
 public:
  // requests: ids by place. AS_BAD_INPUT as BlockScheduler.
  static Result<Serving> make(const SchedulerOptions& options, std::vector<Request> requests);

  const std::vector<Request>& requests() const { return requests_; }
  const SchedulerOptions& options() const { return scheduler_.options(); }
  SchedulerLimits limits() const { return {options().token_budget, options().max_requests}; }
  // Nothing left to compute, nobody left to come.
  bool done() const;

  // Arrivals of this step; where nobody is live and nobody arrives now, those who would come next
  // do. Forgets the events of the step before. Not when done().
  void begin_step(std::int64_t step);
  // Ids of the live requests: running in order of admission, then waiting, head first.
  const std::vector<std::int32_t>& live() const { return live_; }
  const ServingStep& schedule();
  const ServingStep& step() const { return step_; }
  // sampled: by row, the token that a request goes on with; -1 = nothing. accepted: by row, the
  // leading drafts that held, which come before that token; empty = none of anybody. A request that
  // has no token to go on with ends, and so does one that is to be aborted before the next step.
  // proposed: by row, what the model drafts behind that token, for the next step to verify; -1 =
  // nothing; empty = nothing for anybody. Returns the ids that are over.
  std::vector<std::int32_t> finish_step(std::span<const std::int32_t> sampled,
                                        std::span<const std::int32_t> accepted = {},
                                        std::span<const std::int32_t> proposed = {});

  // Before the first step: whose drafts decode steps verify from then on; null = nobody's.
  void set_drafter(std::shared_ptr<const Drafter> drafter) { drafter_ = std::move(drafter); }
  // By row: tokens that this step computes behind those that are known. After schedule() without
  // those that got no room.
  const std::vector<std::vector<std::int32_t>>& drafts() const { return drafts_; }

  // Blocks.
  std::int64_t num_blocks() const { return pool().num_blocks(); }    // null block included
  std::int32_t first_block() const { return pool().first_block(); }  // the lowest id but the null's
  std::int32_t end_block() const { return pool().end_block(); }      // ids are below
  std::int64_t num_free() const { return pool().num_free(); }
  std::span<const std::int32_t> table(std::int32_t request, int group) const;
  std::vector<std::int32_t> free_list() const { return pool().queue().ids(); }  // front first
  std::vector<BlockOwner> owners() const;                                       // by block id
  // What was last written to a block, also when that is gone: group, index and writer alone.
  BlockOwner content(std::int32_t block) const;
  // Blocks with rows that can still be read: held, or free with a key. Ascending.
  std::vector<std::int32_t> blocks_with_content() const;
  std::vector<BlockKey> keys() const;  // by block; a block's own key first
  PoolUsage usage() const;
  ServingTotals totals() const;
  // What happened to blocks and requests since begin_step.
  const std::vector<CacheEvent>& events() const { return events_; }

  const BlockScheduler& scheduler() const { return scheduler_; }
  BlockScheduler& scheduler() { return scheduler_; }
  const StepPlan& plan() const { return plan_; }

 private:
  struct Content {
    std::int32_t writer = -1, group = -1, index = -1;
  };
  // Tells events_ of what the scheduler does while it lives.
  class Listening;

  explicit Serving(BlockScheduler scheduler) : scheduler_(std::move(scheduler)) {}
  const BlockPool& pool() const { return scheduler_.kv().pool(); }
  const GroupTable& group_table(std::int32_t slot, std::size_t group) const {
    return scheduler_.kv().table(slot, group);
  }
  std::int32_t slot(std::int32_t request) const {
    return slots_[static_cast<std::size_t>(request)];
  }
  std::int32_t row_of(std::int64_t request) const;
  void arrive(Request& request);
  void draft();
  std::vector<std::int32_t> drafts_of(const Request& request) const;
  void refresh();  // requests_ from the scheduler's
  void note_contents(std::size_t first_event);
  void forget_uncomputed(std::size_t first_event);
  std::vector<std::optional<MissReport>> explain_waiting() const;
  void note_shared(std::int32_t row, std::size_t first_event);

  BlockScheduler scheduler_;
  std::vector<Request> requests_;
  std::vector<std::int32_t> slots_;  // of the scheduler, by request; -1 = not arrived
  std::vector<std::int32_t> live_;
  StepPlan plan_;
  ServingStep step_;
  std::int64_t hits_ = 0, hit_tokens_ = 0, drafted_ = 0, accepted_ = 0;
  std::vector<Content> contents_;  // by block: what was written to it last
  std::vector<CacheEvent> events_;
  std::shared_ptr<const Drafter> drafter_;
  std::vector<std::vector<std::int32_t>> drafts_;  // by row
  std::vector<std::int64_t> verified_;             // by request: steps that verified drafts
  std::vector<std::int32_t> proposed_;  // by request: the model's draft, -1 = it has none
};

}  // namespace attnscope
