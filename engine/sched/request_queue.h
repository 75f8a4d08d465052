// Requests that wait, in the order in which they are tried: first come first served, or by
// priority, then arrival, then id.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "engine/sched/sched_request.h"

namespace attnscope {

enum class SchedulePolicy { kFcfs, kPriority };

class RequestQueue {
 public:
  explicit RequestQueue(SchedulePolicy policy = SchedulePolicy::kFcfs) : policy_(policy) {}

  bool empty() const { return policy_ == SchedulePolicy::kFcfs ? line_.empty() : heap_.empty(); }
  std::size_t size() const { return line_.size() + heap_.size(); }
  std::int32_t head() const;  // slot; not empty
  void pop();
  void add(const SchedRequest& request);
  // A preempted one: before all others, or by priority.
  void put_back(const SchedRequest& request);
  void remove(std::int32_t slot);           // nothing where it is not in the queue
  std::vector<std::int32_t> slots() const;  // head first

 private:
  struct Entry {
    std::int64_t priority = 0;
    double arrival = 0;
    std::int64_t id = 0;
    std::int32_t slot = 0;
  };
  static bool later(const Entry& a, const Entry& b);

  SchedulePolicy policy_;
  std::deque<std::int32_t> line_;  // FCFS
  std::vector<Entry> heap_;        // priority: the head in front
};

}  // namespace attnscope
