#include "engine/sched/request_queue.h"

#include <algorithm>
#include <tuple>

namespace attnscope {

const char* request_status_name(RequestStatus status) {
  switch (status) {
    case RequestStatus::kWaiting:
      return "waiting";
    case RequestStatus::kRunning:
      return "running";
    case RequestStatus::kPreempted:
      return "preempted";
    case RequestStatus::kStopped:
      return "stopped";
    case RequestStatus::kLengthCapped:
      return "length_capped";
    case RequestStatus::kAborted:
      return "aborted";
  }
  return "?";
}

bool RequestQueue::later(const Entry& a, const Entry& b) {
  return std::tie(a.priority, a.arrival, a.id) > std::tie(b.priority, b.arrival, b.id);
}

std::int32_t RequestQueue::head() const {
  return policy_ == SchedulePolicy::kFcfs ? line_.front() : heap_.front().slot;
}

void RequestQueue::pop() {
  if (policy_ == SchedulePolicy::kFcfs) {
    line_.pop_front();
    return;
  }
  std::pop_heap(heap_.begin(), heap_.end(), later);
  heap_.pop_back();
}

void RequestQueue::add(const SchedRequest& request) {
  if (policy_ == SchedulePolicy::kFcfs) {
    line_.push_back(request.slot);
    return;
  }
  heap_.push_back({request.priority, request.arrival, request.id, request.slot});
  std::push_heap(heap_.begin(), heap_.end(), later);
}

void RequestQueue::put_back(const SchedRequest& request) {
  if (policy_ == SchedulePolicy::kFcfs) {
    line_.push_front(request.slot);
  } else {
    add(request);
  }
}

void RequestQueue::remove(std::int32_t slot) {
  std::erase(line_, slot);
  if (std::erase_if(heap_, [&](const Entry& e) { return e.slot == slot; }) > 0) {
    std::make_heap(heap_.begin(), heap_.end(), later);
  }
}

std::vector<std::int32_t> RequestQueue::slots() const {
  if (policy_ == SchedulePolicy::kFcfs) return {line_.begin(), line_.end()};
  std::vector<Entry> sorted = heap_;
  std::sort(sorted.begin(), sorted.end(),
            [](const Entry& a, const Entry& b) { return later(b, a); });
  std::vector<std::int32_t> slots;
  slots.reserve(sorted.size());
  for (const Entry& e : sorted) slots.push_back(e.slot);
  return slots;
}

}  // namespace attnscope
