// The scheduler against a model of it in a few lines, by RapidCheck: random arrivals, aborts and
// steps under a pool that is too small, shrunk to the shortest sequence that fails. One group of
// full attention without a prefix cache, so that a request's blocks follow from its length.
// RC_PARAMS sets seed and number of runs.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <rapidcheck/state.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <ostream>
#include <tuple>
#include <vector>

#include "engine/sched/sched_invariants.h"

namespace attnscope {
namespace blocks_scheduler_property_test {

// A pool runs out of blocks late in a sequence: the library's own 100 short ones are too few.
[[maybe_unused]] const int kMore = setenv("RC_PARAMS", "max_success=2000 max_size=200", 0);

constexpr std::int64_t kBlock = 4, kBlocks = 9, kBudget = 12, kSeats = 3, kLongest = 24;

struct Entry {
  std::int64_t known = 0, prompt = 0, computed = 0, blocks = 0, most = 0, priority = 0;
};

// A step's plan: id, tokens, newly admitted; and who lost their blocks.
struct Plan {
  std::vector<std::tuple<std::int64_t, std::int64_t, bool>> scheduled;
  std::vector<std::int64_t> preempted;
  bool operator==(const Plan&) const = default;
};

struct Model {
  bool by_priority = false;
  std::int64_t free = kBlocks - 1, next = 0;
  std::map<std::int64_t, Entry> live;
  std::vector<std::int64_t> running, waiting;

  void take(Entry& e, std::int64_t tokens) {
    const std::int64_t need = (tokens + kBlock - 1) / kBlock;
    free -= std::max<std::int64_t>(0, need - e.blocks);
    e.blocks = std::max(e.blocks, need);
  }
  bool fits(const Entry& e, std::int64_t tokens) const {
    return (tokens + kBlock - 1) / kBlock - e.blocks <= free;
  }
  // Ids grow with arrival.
  bool before(std::int64_t a, std::int64_t b) const {
    const std::int64_t pa = live.at(a).priority, pb = live.at(b).priority;
    return by_priority && pa != pb ? pa < pb : a < b;
  }
  void queue(std::int64_t id, bool back_again) {
    const auto place = by_priority
                           ? std::find_if(waiting.begin(), waiting.end(),
                                          [&](std::int64_t other) { return before(id, other); })
                       : back_again ? waiting.begin()
                                    : waiting.end();
    waiting.insert(place, id);
  }
  void drop(std::int64_t id) {
    free += live.at(id).blocks;
    std::erase(running, id);
    std::erase(waiting, id);
    live.erase(id);
  }

  Plan plan() {
    Plan out;
    std::int64_t budget = kBudget;
    for (std::size_t i = 0; i < running.size() && budget > 0;) {
      const std::int64_t id = running[i];
      Entry& e = live.at(id);
      const std::int64_t n = std::min(e.known - e.computed, budget);
      bool lost = false;
      while (!lost && !fits(e, e.computed + n)) {
        const auto victim = by_priority
                                ? std::max_element(running.begin(), running.end(),
                                                   [&](auto a, auto b) { return before(a, b); })
                                : running.end() - 1;
        const std::int64_t whom = *victim;
        if (victim - running.begin() < static_cast<std::ptrdiff_t>(i)) --i;
        running.erase(victim);
        std::erase_if(out.scheduled, [&](const auto& s) {
          if (std::get<0>(s) != whom) return false;
          budget += std::get<1>(s);
          return true;
        });
        Entry& v = live.at(whom);
        free += v.blocks;
        v.blocks = v.computed = 0;
        queue(whom, true);
        out.preempted.push_back(whom);
        lost = whom == id;
      }
      if (lost) break;
      take(e, e.computed + n);
      out.scheduled.emplace_back(id, n, false);
      budget -= n;
      ++i;
    }
    while (out.preempted.empty() && !waiting.empty() && budget > 0 &&
           static_cast<std::int64_t>(running.size()) < kSeats) {
      const std::int64_t id = waiting.front();
      Entry& e = live.at(id);
      if (!fits(e, e.known)) break;
      const std::int64_t n = std::min(e.known, budget);
      take(e, n);
      waiting.erase(waiting.begin());
      running.push_back(id);
      out.scheduled.emplace_back(id, n, true);
      budget -= n;
    }
    return out;
  }
  void results(const Plan& plan) {
    for (const auto& [id, tokens, admitted] : plan.scheduled) {
      Entry& e = live.at(id);
      e.computed += tokens;
      if (e.computed < e.known) continue;
      ++e.known;
      if (e.known - e.prompt >= e.most || e.known >= kLongest) drop(id);
    }
  }
};

// The scheduler and all its invariants around every call.
struct Watched {
  explicit Watched(const SchedulerOptions& o) : s(*BlockScheduler::make(o)), audit(s) {}
  BlockScheduler s;
  SchedAuditor audit;
};

void check(const Model& m, const Watched& w) {
  for (const Violation& v : w.audit.findings()) RC_FAIL(v.text());
  RC_ASSERT(w.s.kv().pool().num_free() == m.free);
  const auto ids = [&](const std::vector<std::int32_t>& slots) {
    std::vector<std::int64_t> out;
    for (const std::int32_t slot : slots) out.push_back(w.s.request(slot).id);
    return out;
  };
  RC_ASSERT(ids(w.s.running()) == m.running);
  RC_ASSERT(ids(w.s.waiting()) == m.waiting);
  for (const auto& [id, e] : m.live) {
    const SchedRequest* r = w.s.find(id);
    RC_ASSERT(r != nullptr);
    RC_ASSERT(r->computed == e.computed);
    RC_ASSERT(r->num_tokens() == e.known);
    RC_ASSERT(static_cast<std::int64_t>(w.s.kv().table(r->slot, 0).blocks.size()) == e.blocks);
  }
}

using Command = rc::state::Command<Model, Watched>;

struct Add : Command {
  std::int64_t prompt = *rc::gen::inRange<std::int64_t>(1, kLongest);
  std::int64_t most = *rc::gen::inRange<std::int64_t>(1, 7);
  std::int64_t priority = *rc::gen::inRange<std::int64_t>(0, 3);
  void apply(Model& m) const override {
    const std::int64_t id = m.next++;
    m.live[id] = {prompt, prompt, 0, 0, most, priority};
    m.queue(id, false);
  }
  void run(const Model& m, Watched& w) const override {
    SchedRequest r;
    r.id = m.next;
    r.tokens.resize(static_cast<std::size_t>(prompt), 5);
    r.stop.max_tokens = most;
    r.priority = priority;
    r.arrival = static_cast<double>(m.next);
    RC_ASSERT(static_cast<bool>(w.s.add(std::move(r))));
    w.audit.after_change();
    check(nextState(m), w);
  }
  void show(std::ostream& out) const override {
    out << "add " << prompt << " tokens, " << most << " more, priority " << priority;
  }
};

struct Step : Command {
  void apply(Model& m) const override { m.results(m.plan()); }
  void run(const Model& m, Watched& w) const override {
    Model copy = m;
    const Plan expected = copy.plan();
    w.audit.before_schedule();
    const StepPlan plan = w.s.schedule();
    w.audit.after_schedule(plan);
    Plan got;
    std::vector<std::int32_t> sampled;
    for (const ScheduledTokens& t : plan.scheduled) {
      got.scheduled.emplace_back(t.id, t.tokens, t.admitted);
      const SchedRequest& r = w.s.request(t.slot);
      sampled.push_back(r.computed >= r.num_tokens() ? 7 : kNoToken);
    }
    got.preempted = plan.preempted;
    RC_ASSERT(got.scheduled == expected.scheduled);
    RC_ASSERT(got.preempted == expected.preempted);
    w.s.results(plan, sampled);
    w.audit.after_results(plan);
    check(nextState(m), w);
  }
  void show(std::ostream& out) const override { out << "step"; }
};

struct Abort : Command {
  std::int64_t id = 0;
  explicit Abort(const Model& m) {
    std::vector<std::int64_t> ids = {m.next};  // nobody
    for (const auto& [live, entry] : m.live) ids.push_back(live);
    id = *rc::gen::elementOf(ids);
  }
  void apply(Model& m) const override {
    if (m.live.contains(id)) m.drop(id);
  }
  void run(const Model& m, Watched& w) const override {
    RC_ASSERT(w.s.abort(id) == m.live.contains(id));
    w.audit.after_change();
    check(nextState(m), w);
  }
  void show(std::ostream& out) const override { out << "abort " << id; }
};

RC_GTEST_PROP(BlocksModel, SchedulerDoesWhatItsModelDoes, ()) {
  Model model;
  model.by_priority = *rc::gen::arbitrary<bool>();
  SchedulerOptions options;
  options.kv.groups = {{GroupKind::kFull, static_cast<std::int32_t>(kBlock), 0, false}};
  options.kv.num_blocks = kBlocks;
  options.kv.caching = false;
  options.kv.max_model_len = kLongest;
  options.kv.switches = switches_of(*rc::gen::element(CacheProfile::kM, CacheProfile::kA));
  options.token_budget = kBudget;
  options.max_requests = kSeats;
  options.policy = model.by_priority ? SchedulePolicy::kPriority : SchedulePolicy::kFcfs;
  Watched watched(options);
  // Steps twice as often as the others.
  rc::state::check(model, watched, rc::state::gen::execOneOfWithArgs<Add, Step, Step, Abort>());
}

}  // namespace blocks_scheduler_property_test
}  // namespace attnscope
