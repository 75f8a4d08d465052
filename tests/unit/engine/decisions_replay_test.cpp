// Decisions in replays against the plain model: random calls in any order, with steps in flight,
// resets and all that tells equal prompts apart; and a scheduler that goes by another rule is
// named.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/decisions/replay_judge.h"

namespace attnscope {
namespace decisions_replay_test {

SchedulerOptions options(CacheProfile profile, std::int64_t steps_in_flight) {
  SchedulerOptions o;
  o.kv.switches = switches_of(profile);
  o.kv.groups = {{GroupKind::kFull, 16, 0, false}, {GroupKind::kSliding, 16, 40, false}};
  o.kv.num_blocks = 33;
  o.kv.max_model_len = 512;
  o.token_budget = 64;
  o.max_requests = 4;
  o.whole_sequence = false;
  o.steps_in_flight = steps_in_flight;
  return o;
}

// Prompts of few kinds, so that they share beginnings; in between the calls of an engine's loop,
// results given to their steps in order.
class Recorder {
 public:
  Recorder(const SchedulerOptions& options, unsigned seed)
      : random_(seed), scheduler_(*BlockScheduler::make(options)) {
    replay_.name = "random";
    replay_.options = options;
  }
  Replay record(int calls) {
    const auto flight = static_cast<std::size_t>(replay_.options.steps_in_flight);
    while (calls-- > 0) {
      const int kind = pick(20);
      if (kind < 4) {
        add();
      } else if (kind == 4) {
        abort();
      } else if (kind == 5 && pick(4) == 0) {
        reset();
      } else if (plans_.empty() || (plans_.size() < flight && kind < 13)) {
        schedule();
      } else {
        results();
      }
    }
    return std::move(replay_);
  }

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  ReplayCall& call(ReplayCallKind kind) {
    ReplayCall& c = replay_.calls.emplace_back();
    c.kind = kind;
    c.line = static_cast<int>(replay_.calls.size()) + 1;
    return c;
  }
  void add() {
    SchedRequest r;
    r.id = next_id_++;
    r.arrival = static_cast<double>(r.id);
    r.priority = pick(3);
    r.stop.max_tokens = 1 + pick(40);
    if (pick(4) == 0) r.stop.stop_tokens = {9};
    const int family = pick(2), length = 20 + pick(120), own = 16 * pick(8);
    for (int t = 0; t < length; ++t) {
      r.tokens.push_back(100 * (family + 1) + (t < own ? t : 1000 * static_cast<int>(r.id) + t));
    }
    r.skip_lookup = pick(8) == 0;
    if (pick(4) == 0) r.extras.adapter = pick(2) == 0 ? "one" : "other";
    if (pick(4) == 0) r.extras.salt = pick(2) == 0 ? "tenant" : "other";
    if (pick(3) == 0) {
      r.extras.media = {{pick(2) == 0 ? "cat" : "dog", pick(3) * 5, 20},
                        {pick(2) == 0 ? "cat" : "dog", 30 + pick(3), 1 + pick(40)}};
    }
    ASSERT_TRUE(scheduler_.add(r));
    call(ReplayCallKind::kAdd).request = r;
  }
  void abort() {
    const std::int64_t id = pick(static_cast<int>(next_id_) + 1);
    scheduler_.abort(id);
    call(ReplayCallKind::kAbort).id = id;
  }
  void reset() {
    const bool preempt = pick(2) == 0;
    scheduler_.reset_prefix_cache(preempt);
    call(ReplayCallKind::kReset).preempt_running = preempt;
  }
  void schedule() {
    plans_.push_back(scheduler_.schedule());
    call(ReplayCallKind::kSchedule);
    // What samples a token in this step: known to be computed to its end, as an engine knows.
    std::vector<bool>& last = samples_.emplace_back();
    for (const ScheduledTokens& s : plans_.back().scheduled) {
      const SchedRequest& r = scheduler_.request(s.slot);
      last.push_back(r.computed >= r.num_tokens());
    }
  }
  void results() {
    const StepPlan plan = plans_.front();
    ReplayCall& c = call(ReplayCallKind::kResults);
    std::vector<std::vector<std::int32_t>> sampled(plan.scheduled.size());
    for (std::size_t i = 0; i < plan.scheduled.size(); ++i) {
      if (!samples_.front()[i]) continue;
      sampled[i] = {pick(30)};
      c.tokens.emplace_back(plan.scheduled[i].id, sampled[i]);
    }
    scheduler_.results(plan, sampled);
    scheduler_.take_finished();
    plans_.erase(plans_.begin());
    samples_.erase(samples_.begin());
  }

  std::mt19937 random_;
  BlockScheduler scheduler_;
  Replay replay_;
  std::vector<StepPlan> plans_;
  std::vector<std::vector<bool>> samples_;
  std::int64_t next_id_ = 0;
};

std::int64_t judged(const DecisionCounts& counts, Decision decision) {
  return counts[static_cast<std::size_t>(decision)];
}

TEST(DecisionsOfReplays, AreThePlainModels) {
  DecisionCounts all{};
  for (unsigned seed = 0; seed < 160; ++seed) {
    SchedulerOptions o =
        options(seed % 2 == 0 ? CacheProfile::kM : CacheProfile::kA, 1 + seed / 2 % 3);
    if (seed % 5 == 0) o.policy = SchedulePolicy::kPriority;
    if (seed % 7 == 0) o.kv.groups = {{GroupKind::kFull, 16, 0, false}};
    if (seed % 6 == 4) o.chunks = {4, 60};
    if (o.steps_in_flight == 1 && seed % 4 > 1) {
      o.kv.caching = false;
      o.swap_blocks = 14;
    }
    const Replay replay = Recorder(o, seed).record(300);
    Result<ReplayJudge> judge = ReplayJudge::make(replay);
    ASSERT_TRUE(judge) << judge.error().text();
    const Result<ReplayOutcome> outcome = run_replay(replay, &*judge);
    ASSERT_TRUE(outcome) << "seed " << seed << ": " << outcome.error().text();
    ASSERT_FALSE(judge->wrong()) << "seed " << seed << ", call " << judge->line() << ", "
                                 << decision_name(judge->wrong()->decision) << ": "
                                 << judge->wrong()->note;
    for (std::size_t i = 0; i < kDecisions; ++i) all[i] += judge->counts()[i];
  }
  for (std::size_t i = 0; i < kDecisions; ++i) {
    EXPECT_GT(all[i], 300) << decision_name(static_cast<Decision>(i));
  }
}

// The recorded calls are those of one engine; the judge is told another rule or another prompt.
TEST(DecisionsOfReplays, WhatIsNotTheirsIsNamed) {
  // Who finds less needs more room, and may not be admitted for it.
  struct Case {
    const char* what;
    std::function<void(Replay&)> change;
    std::vector<Decision> named;
  };
  const auto requests = [](Replay& replay, const std::function<void(SchedRequest&)>& change) {
    for (ReplayCall& c : replay.calls) {
      if (c.kind == ReplayCallKind::kAdd) change(c.request);
    }
  };
  const std::vector<Case> cases = {
      {"steps in flight", [](Replay& r) { r.options.steps_in_flight = 1; }, {Decision::kTokens}},
      {"salt",
       [&](Replay& r) { requests(r, [](SchedRequest& s) { s.extras.salt.clear(); }); },
       {Decision::kHit, Decision::kKeys, Decision::kAdmission}},
      {"adapter",
       [&](Replay& r) { requests(r, [](SchedRequest& s) { s.extras.adapter.clear(); }); },
       {Decision::kHit, Decision::kKeys, Decision::kAdmission}},
      {"place of media",
       [&](Replay& r) {
         requests(r, [](SchedRequest& s) {
           for (MediaItem& m : s.extras.media) m.offset = 0;
         });
       },
       {Decision::kHit, Decision::kKeys, Decision::kAdmission}},
      {"lookup",
       [&](Replay& r) { requests(r, [](SchedRequest& s) { s.skip_lookup = false; }); },
       {Decision::kHit, Decision::kAdmission}},
      {"results",
       [](Replay& r) {
         for (ReplayCall& c : r.calls) {
           for (auto& [id, tokens] : c.tokens) tokens.push_back(9);
         }
       },
       {Decision::kStop, Decision::kTokens, Decision::kKeys}},
  };
  for (const Case& c : cases) {
    int named = 0;
    for (unsigned seed = 0; seed < 30; ++seed) {
      const Replay replay = Recorder(options(CacheProfile::kA, 2), seed).record(300);
      Replay told = replay;
      c.change(told);
      Result<ReplayJudge> judge = ReplayJudge::make(told);
      ASSERT_TRUE(judge);
      // The scheduler makes its own calls; the judge hears of those that it is told.
      struct Told : ReplayObserver {
        void after(const ReplayCall& call, const BlockScheduler& scheduler, const StepPlan& plan,
                   bool done) override {
          const auto at = static_cast<std::size_t>(call.line - 2);
          judge->after(replay->calls[at], scheduler, plan, done);
        }
        const Replay* replay = nullptr;
        ReplayJudge* judge = nullptr;
      } observer;
      observer.replay = &told;
      observer.judge = &*judge;
      ASSERT_TRUE(run_replay(replay, &observer));
      if (!judge->wrong()) continue;
      ++named;
      EXPECT_NE(std::ranges::find(c.named, judge->wrong()->decision), c.named.end())
          << c.what << ": " << decision_name(judge->wrong()->decision) << ", "
          << judge->wrong()->note;
    }
    EXPECT_GT(named, 8) << c.what;
  }
}

}  // namespace decisions_replay_test
}  // namespace attnscope
