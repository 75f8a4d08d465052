// The plain model's scheduler: who computes how many tokens in a step, who loses its blocks to
// whom, who is admitted with what it finds computed, and who is over after the step.
//
//   add, abort, reset -> set_drafts -> step -> results -> ...
//
// With several steps in flight step() goes on before results(), which are those of the oldest one.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "engine/decisions/plain_cache.h"

namespace attnscope::plain {

struct Planned {
  std::int64_t request = -1;
  std::int64_t tokens = 0;
  bool admitted = false;  // in this step
  std::int64_t hit = 0;   // tokens that a newcomer found computed
};

struct Preempted {
  std::int64_t request = -1;
  std::int64_t by = -1;  // who needed the blocks
};

// Rows of one entry of a request's table, between a block and one of the host.
struct Moved {
  std::int64_t request = -1;
  std::size_t group = 0;
  std::int64_t entry = 0;
  std::int32_t block = 0, host = 0;
};

struct Plan {
  std::vector<std::int64_t> running;  // before the step, in order of admission
  std::vector<Planned> scheduled;     // in the order decided
  std::vector<Preempted> preempted;
  std::vector<Moved> out, in;  // to host memory, and from there
};

class Scheduler {
 public:
  explicit Scheduler(const Rules& rules)
      : rules_(rules), cache_(rules), host_(static_cast<std::size_t>(rules.host_blocks)) {}

  const Rules& rules() const { return rules_; }
  void add(Request request);
  void abort(std::int64_t id);
  // Tokens to verify in the next step behind those that are known.
  void set_drafts(std::int64_t id, std::int64_t drafts) { at(id).drafts = drafts; }
  const Plan& step();
  // By request of the plan: the tokens it got, accepted drafts first. Who is computed to its end
  // and got none has nothing to go on with: abort_empty ends it.
  void results(const std::map<std::int64_t, std::vector<std::int32_t>>& tokens, bool abort_empty);

  // Everything that is kept to be found goes. of_all: those that run lose their blocks first.
  // False while blocks are held.
  bool reset(bool of_all);

  const Plan& plan() const { return plan_; }
  const Plan& over() const { return over_; }  // whose results came last
  bool knows(std::int64_t id) const { return requests_.contains(id); }
  const Request& request(std::int64_t id) const { return requests_.at(id); }
  const std::map<std::int64_t, Request>& requests() const { return requests_; }
  bool idle() const { return running_.empty() && waiting_.empty(); }
  const std::vector<std::int64_t>& running() const { return running_; }
  std::vector<std::int64_t> waiting() const;  // head first
  const Cache& cache() const { return cache_; }

 private:
  Request& at(std::int64_t id) { return requests_.at(id); }
  void step_running(std::int64_t& budget);
  void step_waiting(std::int64_t& budget);
  std::size_t victim() const;
  // Whether the first goes before the second: in the queue of a scheduler by priority.
  bool sooner(std::int64_t a, std::int64_t b) const;
  void preempt(std::size_t place, bool keep);  // of those that run; keep: its rows, if it can be
  // Whether there is room in host memory for what of the request has been computed and is in sight.
  bool send_away(Request& request);
  void bring_back(Request& request);
  std::int64_t longest_chunk() const;
  void stop(Request& request);
  void finish(std::int64_t id, State state);

  Rules rules_;
  Cache cache_;
  std::map<std::int64_t, Request> requests_;  // of all times
  std::vector<std::int64_t> running_, waiting_;
  // What each block of the host holds; request -1 = nothing.
  std::vector<Moved> host_;
  std::int64_t chunk_ = 0;  // of this step
  Plan plan_, over_;
  std::deque<Plan> in_flight_;  // oldest first
};

}  // namespace attnscope::plain
