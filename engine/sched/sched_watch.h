// Somebody who watches a loop around a scheduler; the owner of the loop calls it.
#pragma once

namespace attnscope {

struct StepPlan;

class SchedWatch {
 public:
  virtual ~SchedWatch() = default;
  virtual void before_schedule() {}
  virtual void after_schedule(const StepPlan& /*plan*/) {}
  virtual void after_results(const StepPlan& /*plan*/) {}
  virtual void after_change() {}  // add, abort, reset
  virtual bool go_on() const { return true; }
  virtual void detach() {}  // the loop is over, the scheduler about to go
};

}  // namespace attnscope
