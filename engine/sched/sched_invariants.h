// What must hold of the scheduler and of a step's plan, one function each.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "engine/cache/kv_auditor.h"
#include "engine/sched/block_scheduler.h"
#include "engine/sched/sched_watch.h"

namespace attnscope {

Finding check_slots(const BlockScheduler& s, const StepPlan& plan);  // I16
Finding check_scheduler(const BlockScheduler& s);                    // I18: its lists
Finding check_plan(const BlockScheduler& s, const StepPlan& plan);   // I18: a step's plan

// I23: a block of host memory is of one request at most, which waits, or it is free; and what a
// step brings back lies in the request's table.
Finding check_host_blocks(const BlockScheduler& s);
Finding check_swaps(const BlockScheduler& s, const StepPlan& plan);

// I19: what a step in flight reads or writes stays held until its results are in. The blocks of a
// step, noted when it was planned.
struct StepInFlight {
  std::int64_t step = 0;
  std::vector<std::int32_t> blocks;
};
StepInFlight blocks_in_use(const BlockScheduler& s, const StepPlan& plan);
Finding check_in_flight(const BlockScheduler& s, const std::deque<StepInFlight>& steps);

// I20: with nothing running and nothing pinned, a head that fits into the pool is admitted.
struct HeadBefore {
  std::int64_t id = -1;
  bool must_be_admitted = false;
};
HeadBefore head_before(const BlockScheduler& s);
Finding check_liveness(const HeadBefore& head, const StepPlan& plan);

// All invariants around every call to a scheduler: the block manager's by its audit, those here as
// the owner of the loop tells.
class SchedAuditor : public SchedWatch {
 public:
  // The scheduler stays where it is until detach(). events: also replays the event stream (I15).
  explicit SchedAuditor(BlockScheduler& scheduler, bool events = false);
  SchedAuditor(const SchedAuditor&) = delete;
  SchedAuditor& operator=(const SchedAuditor&) = delete;

  void before_schedule() override;
  void after_schedule(const StepPlan& plan) override;
  void after_results(const StepPlan& plan) override;
  void after_change() override;
  bool go_on() const override { return findings().empty(); }
  void detach() override { scheduler_.kv().set_audit(nullptr); }
  const std::vector<Violation>& findings() const { return kv_.findings(); }
  std::int64_t calls() const { return kv_.calls(); }

 private:
  void check_now(const char* met);

  BlockScheduler& scheduler_;
  KvAuditor kv_;
  bool events_;
  KvEventMirror mirror_;
  HeadBefore head_;
  std::deque<StepInFlight> in_flight_;
};

}  // namespace attnscope
