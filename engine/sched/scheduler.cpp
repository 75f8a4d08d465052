#include "engine/sched/scheduler.h"

#include <algorithm>

namespace attnscope {

Scheduler::Scheduler(const CacheLayout& layout, SchedulerLimits limits, std::int64_t usable_blocks)
    : layout_(layout), limits_(limits), usable_blocks_(usable_blocks) {}

void Scheduler::add(Request request) {
  request.id = static_cast<std::int32_t>(requests_.size());
  request.state = RequestState::kWaiting;
  if (request.prompt_tokens <= 0) request.prompt_tokens = request.num_tokens();
  waiting_.push_back(request.id);
  requests_.push_back(std::move(request));
}

std::vector<std::int32_t> Scheduler::live() const {
  std::vector<std::int32_t> ids = running_;
  ids.insert(ids.end(), waiting_.begin(), waiting_.end());
  return ids;
}

bool Scheduler::done() const { return running_.empty() && waiting_.empty(); }

std::int64_t Scheduler::demand(const Request& request) const {
  return layout_.demand(request.max_len(), limits_.token_budget);
}

std::vector<std::int32_t> Scheduler::schedule() {
  std::vector<std::int32_t> tokens;
  std::int64_t budget = limits_.token_budget;
  std::int64_t reserved = 0;
  const auto give = [&](const Request& r) {
    const std::int64_t n = std::min(r.num_tokens() - r.computed, budget);
    budget -= n;
    tokens.push_back(static_cast<std::int32_t>(n));
  };
  for (const std::int32_t id : running_) {
    give(request(id));
    reserved += demand(request(id));
  }
  const std::size_t all = running_.size() + waiting_.size();
  std::size_t admitted = 0;
  while (admitted < waiting_.size() && budget > 0 &&
         static_cast<std::int64_t>(running_.size()) < limits_.max_requests) {
    Request& head = request(waiting_[admitted]);
    const std::int64_t more = demand(head);
    if (reserved + more > usable_blocks_) break;  // nobody overtakes the head
    reserved += more;
    head.state = RequestState::kRunning;
    running_.push_back(head.id);
    give(head);
    ++admitted;
  }
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(admitted));
  tokens.resize(all, 0);
  return tokens;
}

std::vector<std::int32_t> Scheduler::advance(const std::vector<std::int32_t>& live,
                                             const std::vector<std::int32_t>& scheduled,
                                             const std::vector<std::int32_t>& sampled) {
  std::vector<std::int32_t> finished;
  for (std::size_t i = 0; i < live.size(); ++i) {
    if (scheduled[i] <= 0) continue;
    Request& r = request(live[i]);
    r.computed += scheduled[i];
    if (r.computed < r.num_tokens()) continue;
    const bool sampled_one = sampled[i] >= 0 && r.num_tokens() < r.max_len();
    if (sampled_one) r.tokens.push_back(sampled[i]);
    // Without a token (a row of NaN logits) there is nothing to go on with.
    if (!sampled_one || r.num_tokens() >= r.max_len()) {
      r.state = RequestState::kFinished;
      finished.push_back(r.id);
    }
  }
  std::erase_if(running_,
                [&](std::int32_t id) { return request(id).state == RequestState::kFinished; });
  return finished;
}

void Scheduler::restore(std::vector<Request> requests, const std::vector<std::int32_t>& live) {
  requests_ = std::move(requests);
  running_.clear();
  waiting_.clear();
  for (const std::int32_t id : live) {
    (request(id).state == RequestState::kRunning ? running_ : waiting_).push_back(id);
  }
}

}  // namespace attnscope
