// Scenarios of the scheduler.
#include <gtest/gtest.h>

#include "engine/sched/sched_invariants.h"
#include "tests/unit/engine/blocks_bench.h"

namespace attnscope::blocks_test {
namespace blocks_catalogue_scheduler_test {

// A scheduler under test: all invariants around every call.
class Loop {
 public:
  explicit Loop(const SchedulerOptions& o) : s(*BlockScheduler::make(o)), audit(s, true) {}
  ~Loop() {
    for (const Violation& v : audit.findings()) ADD_FAILURE() << v.text();
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void add(std::int64_t id, Ids prompt, std::int64_t max_tokens = 16, std::int64_t priority = 0,
           double arrival = 0) {
    SchedRequest r;
    r.id = id;
    r.tokens = std::move(prompt);
    r.stop.max_tokens = max_tokens;
    r.priority = priority;
    r.arrival = arrival;
    add(std::move(r));
  }
  void add(SchedRequest r) {
    ASSERT_TRUE(s.add(std::move(r)));
    audit.after_change();
  }
  StepPlan schedule() {
    audit.before_schedule();
    StepPlan plan = s.schedule();
    audit.after_schedule(plan);
    return plan;
  }
  // One token for every request that has computed all it knows.
  void results(const StepPlan& plan, std::int32_t token = 7) {
    Ids sampled;
    for (const ScheduledTokens& t : plan.scheduled) {
      const SchedRequest& r = s.request(t.slot);
      sampled.push_back(r.computed >= r.num_tokens() ? token : kNoToken);
    }
    s.results(plan, sampled);
    audit.after_results(plan);
  }
  void results(const StepPlan& plan, const std::vector<Ids>& sampled) {
    s.results(plan, sampled);
    audit.after_results(plan);
  }
  StepPlan step() {
    StepPlan plan = schedule();
    results(plan);
    return plan;
  }
  Ids blocks(std::int64_t id) const {  // of the first group
    const auto& table = s.kv().table(s.find(id)->slot, 0).blocks;
    return Ids(table.begin(), table.end());
  }
  void abort(std::int64_t id) {
    ASSERT_TRUE(s.abort(id));
    audit.after_change();
  }
  std::vector<std::int64_t> ids(const std::vector<std::int32_t>& slots) const {
    std::vector<std::int64_t> out;
    for (const std::int32_t slot : slots) out.push_back(s.request(slot).id);
    return out;
  }

  BlockScheduler s;
  SchedAuditor audit;
};

using Tokens = std::vector<std::int64_t>;
using IdList = std::vector<std::int64_t>;

Tokens planned(const StepPlan& plan) {
  Tokens out;
  for (const ScheduledTokens& t : plan.scheduled) out.push_back(t.tokens);
  return out;
}
IdList planned_ids(const StepPlan& plan) {
  IdList out;
  for (const ScheduledTokens& t : plan.scheduled) out.push_back(t.id);
  return out;
}

SchedulerOptions plain(std::int64_t blocks, std::int64_t budget,
                       CacheProfile p = CacheProfile::kM) {
  SchedulerOptions o;
  o.kv = options(p, {full(16)}, blocks);
  o.token_budget = budget;
  o.max_requests = 16;
  return o;
}

TEST(BlocksCatalogue, T81_schedule_concurrent_partial_requests) {
  SchedulerOptions o = plain(1000, 1024);
  o.prefill_threshold = 400;
  Loop loop(o);
  for (std::int32_t i = 0; i < 3; ++i) loop.add(i, tokens(800, 10000 * i));
  EXPECT_EQ(planned(loop.step()), (Tokens{400, 400, 224}));
  EXPECT_EQ(planned(loop.step()), (Tokens{400, 400, 224}));
  EXPECT_EQ(planned(loop.step()), (Tokens{1, 1, 352}));
}

TEST(BlocksCatalogue, T82_schedule_order) {
  for (const bool chunks : {true, false}) {
    SchedulerOptions o = plain(1000, 1024);
    o.max_requests = 3;
    o.chunked_prefill = chunks;
    Loop loop(o);
    std::int32_t id = 0;
    for (const std::int32_t length : {800, 800, 10, 10}) {
      loop.add(id, tokens(length, 10000 * id));
      ++id;
    }
    EXPECT_EQ(loop.schedule().scheduled.size(), chunks ? 2u : 1u);
  }
}

TEST(BlocksCatalogue, T83_preempt_during_execution) {
  SchedulerOptions o = plain(11, 100);
  o.kv.caching = false;
  Loop loop(o);
  loop.add(0, tokens(80));
  loop.add(1, tokens(80, 1000));
  const StepPlan first = loop.schedule();
  EXPECT_EQ(planned_ids(first), (IdList{0, 1}));
  // Twenty tokens of the second one are in; the rest of it goes with the next step.
  loop.results(first, 41);
  const StepPlan second = loop.schedule();
  EXPECT_EQ(second.preempted, (IdList{1}));
  EXPECT_EQ(loop.ids(loop.s.running()), (IdList{0}));
  EXPECT_EQ(loop.s.find(1)->status, RequestStatus::kPreempted);
}

TEST(BlocksCatalogue, T83b_token_of_a_step_in_flight_is_kept) {
  SchedulerOptions o = plain(11, 200);
  o.kv.caching = false;
  Loop loop(o);
  loop.add(0, tokens(80));
  loop.add(1, tokens(80, 1000));
  const StepPlan first = loop.schedule();
  EXPECT_EQ(planned(first), (Tokens{80, 80}));
  // Only the first one's token comes in before the next step: it needs a sixth block.
  StepPlan half = first;
  half.scheduled.pop_back();
  loop.results(half, std::vector<Ids>{{41}});
  const StepPlan second = loop.schedule();
  EXPECT_EQ(second.preempted, (IdList{1}));
  StepPlan rest = first;
  rest.scheduled.erase(rest.scheduled.begin());
  loop.results(rest, std::vector<Ids>{{42}});
  EXPECT_EQ(loop.s.find(1)->tokens.back(), 42);
  EXPECT_EQ(loop.s.find(1)->num_tokens(), 81);
}

TEST(BlocksCatalogue, T84_scheduler_reset_prefix_cache) {
  Loop loop(plain(100, 1000));
  IdList order;
  for (std::int32_t i = 0; i < 10; ++i) {
    loop.add(i, tokens(20, 100 * i));
    order.push_back(i);
  }
  loop.step();
  EXPECT_EQ(loop.s.running().size(), 10u);
  EXPECT_FALSE(loop.s.reset_prefix_cache());
  EXPECT_TRUE(loop.s.reset_prefix_cache(true));
  loop.audit.after_change();
  EXPECT_TRUE(loop.s.running().empty());
  EXPECT_EQ(loop.ids(loop.s.waiting()), order);
}

TEST(BlocksCatalogue, T85_no_spec_tokens_scheduled_for_prefill_chunks) {
  SchedulerOptions o = plain(100, 50);
  o.lookahead = 3;
  Loop loop(o);
  loop.add(0, tokens(80));
  StepPlan plan = loop.schedule();
  EXPECT_EQ(planned(plan), (Tokens{50}));
  loop.results(plan);
  loop.s.set_drafts(0, 3);
  plan = loop.schedule();
  EXPECT_EQ(planned(plan), (Tokens{30}));
  loop.results(plan);
  loop.s.set_drafts(0, 3);
  plan = loop.schedule();
  EXPECT_EQ(planned(plan), (Tokens{4}));
  // One draft of three is right.
  loop.results(plan, std::vector<Ids>{{5, 6}});
  EXPECT_EQ(loop.s.find(0)->num_tokens(), 83);
  EXPECT_EQ(loop.s.find(0)->computed, 82);
}

TEST(BlocksCatalogue, T86_memory_leak) {
  Loop loop(plain(100, 1000));
  for (std::int32_t i = 0; i < 5; ++i) loop.add(i, tokens(10, 100 * i), 10);
  while (!loop.s.done()) loop.step();
  EXPECT_EQ(loop.s.kv().pool().num_free(), 99);
  for (std::size_t slot = 0; slot < loop.s.kv().num_slots(); ++slot) {
    EXPECT_EQ(loop.s.kv().table(static_cast<std::int32_t>(slot), 0).size(), 0);
    EXPECT_EQ(loop.s.kv().table(static_cast<std::int32_t>(slot), 0).cached, -1);
  }
}

SchedulerOptions by_priority(std::int64_t blocks, std::int64_t budget, std::int64_t most = 16) {
  SchedulerOptions o = plain(blocks, budget);
  o.policy = SchedulePolicy::kPriority;
  o.max_requests = most;
  return o;
}

TEST(BlocksCatalogue, T87_priority_scheduling_preemption) {
  Loop loop(by_priority(6, 200));
  loop.add(0, tokens(32), 16, 5, 1);
  loop.step();
  loop.add(1, tokens(32, 1000), 16, 0, 2);
  loop.step();
  EXPECT_EQ(loop.s.running().size(), 2u);
  IdList preempted;
  for (int i = 0; i < 3 && preempted.empty(); ++i) preempted = loop.step().preempted;
  EXPECT_EQ(preempted, (IdList{0}));
  EXPECT_EQ(loop.ids(loop.s.running()), (IdList{1}));
}

// The victim comes before the newcomer in the list, so it has its token of the step already.
TEST(BlocksScheduler, AVictimGivesBackTheTokensThatTheStepHadGivenIt) {
  Loop loop(by_priority(6, 200));
  loop.add(0, tokens(31), 16, 5, 1);
  loop.step();
  loop.add(1, tokens(32, 1000), 16, 0, 2);
  loop.step();
  const std::int64_t computed = loop.s.find(0)->computed;
  StepPlan plan = loop.schedule();
  ASSERT_EQ(plan.preempted, (IdList{0}));
  EXPECT_EQ(planned_ids(plan), (IdList{1})) << "nothing of the victim is left in the plan";
  EXPECT_EQ(plan.total_tokens, 1);
  EXPECT_GT(computed, 0);
  EXPECT_EQ(loop.s.find(0)->computed, 0);
  EXPECT_EQ(loop.s.find(0)->num_tokens(), 33) << "what it had sampled stays";
  loop.results(plan);
}

TEST(BlocksScheduler, APreemptedRequestFindsWhatIsLeftOfIt) {
  Loop loop(plain(11, 200));
  loop.add(0, tokens(70), 14);
  loop.add(1, tokens(72, 1000), 16);
  Ids before;
  IdList preempted;
  for (int i = 0; i < 20 && preempted.empty(); ++i) {
    if (loop.s.alive(1)) before = loop.blocks(1);
    preempted = loop.step().preempted;
  }
  ASSERT_EQ(preempted, (IdList{1}));
  ASSERT_EQ(before.size(), 5u);
  for (int i = 0; i < 20 && loop.s.find(1)->status != RequestStatus::kRunning; ++i) loop.step();
  ASSERT_EQ(loop.s.find(1)->status, RequestStatus::kRunning);
  EXPECT_EQ(loop.s.find(1)->hit_tokens, 64) << "four of its five full blocks were not taken";
  const Ids after = loop.blocks(1);
  EXPECT_EQ(Ids(after.begin(), after.begin() + 4), Ids(before.begin(), before.begin() + 4));
}

TEST(BlocksCatalogue, T88_priority_scheduling_victim_selection_and_equal_priority) {
  Loop loop(by_priority(100, 200, 1));
  loop.add(0, tokens(10), 16, 3, 0);
  loop.add(1, tokens(10, 100), 16, 2, 1);
  loop.add(2, tokens(10, 200), 16, 0, 2);
  EXPECT_EQ(planned_ids(loop.step()), (IdList{2}));
  EXPECT_EQ(loop.ids(loop.s.waiting()), (IdList{1, 0}));
  Loop equal(by_priority(100, 200, 1));
  equal.add(0, tokens(10), 16, 1, 3);
  equal.add(1, tokens(10, 100), 16, 1, 1);
  equal.add(2, tokens(10, 200), 16, 1, 2);
  EXPECT_EQ(planned_ids(equal.step()), (IdList{1}));
  EXPECT_EQ(equal.ids(equal.s.waiting()), (IdList{2, 0}));
}

TEST(BlocksCatalogue, T89_priority_scheduling_preemption_and_resumption_when_out_of_kv) {
  Loop loop(by_priority(5, 200));
  loop.add(0, tokens(30), 100, 1, 0);
  loop.step();
  loop.add(1, tokens(32, 1000), 2, 0, 1);
  loop.step();
  EXPECT_EQ(loop.s.kv().pool().num_free(), 0);
  const StepPlan third = loop.step();
  EXPECT_EQ(third.preempted, (IdList{0}));
  EXPECT_FALSE(loop.s.alive(1));
  // What it had computed is computed again but for the blocks that still have its content.
  const StepPlan fourth = loop.schedule();
  ASSERT_EQ(planned_ids(fourth), (IdList{0}));
  EXPECT_EQ(fourth.scheduled[0].tokens + loop.s.find(0)->hit_tokens, 32);
}

TEST(BlocksCatalogue, T90_priority_preemption_bug) {
  for (const CacheProfile p : kBoth) {
    SchedulerOptions o = by_priority(6, 200);
    o.kv.switches = switches_of(p);
    o.kv.caching = false;
    o.prefill_threshold = 15;
    o.whole_sequence = false;
    Loop loop(o);
    loop.add(0, tokens(200), 16, 9, 0);
    StepPlan plan = loop.step();
    plan = loop.step();
    loop.add(1, tokens(15, 1000), 16, 0, 1);
    loop.add(2, tokens(15, 2000), 16, 1, 2);
    plan = loop.step();
    bool third = false;
    for (int i = 0; i < 4; ++i) {
      const StepPlan next = loop.step();
      const IdList ids = planned_ids(next);
      third = third || std::find(ids.begin(), ids.end(), 2) != ids.end();
    }
    EXPECT_TRUE(third);
  }
}

TEST(BlocksCatalogue, T93_stop_via_update_from_output) {
  const auto run = [](const StopRule& rule, const Ids& sampled) {
    Loop loop(plain(100, 100));
    SchedRequest r;
    r.id = 0;
    r.tokens = tokens(4, 500);
    r.stop = rule;
    loop.add(r);
    loop.s.set_drafts(0, 2);
    const StepPlan plan = loop.schedule();
    loop.results(plan, std::vector<Ids>{sampled});
    const SchedRequest& done = loop.s.request(plan.scheduled[0].slot);
    return std::tuple(Ids(done.tokens.begin() + 4, done.tokens.end()), done.status,
                      done.stop_reason);
  };
  StopRule end;
  end.max_tokens = 100;
  end.end_token = 2;
  EXPECT_EQ(run(end, {10, 2, 12}), std::tuple(Ids({10, 2}), RequestStatus::kStopped, -1));
  StopRule token = end;
  token.stop_tokens = {42, 43};
  EXPECT_EQ(run(token, {10, 42, 12}), std::tuple(Ids({10, 42}), RequestStatus::kStopped, 42));
  StopRule length;
  length.max_tokens = 2;
  EXPECT_EQ(run(length, {10, 11, 12}), std::tuple(Ids({10, 11}), RequestStatus::kLengthCapped, -1));
  StopRule ignoring = end;
  ignoring.ignore_end = true;
  EXPECT_EQ(run(ignoring, {10, 2, 12}), std::tuple(Ids({10, 2, 12}), RequestStatus::kRunning, -1));
}

TEST(BlocksCatalogue, T94_check_stop_min_tokens) {
  Loop loop(plain(100, 100));
  SchedRequest r;
  r.id = 0;
  r.tokens = tokens(4, 500);
  r.stop.max_tokens = 20;
  r.stop.min_tokens = 5;
  r.stop.end_token = 2;
  loop.add(r);
  for (int i = 0; i < 4; ++i) {
    const StepPlan plan = loop.schedule();
    loop.results(plan, std::vector<Ids>{{2}});
    EXPECT_TRUE(loop.s.alive(0)) << i;
  }
  const StepPlan plan = loop.schedule();
  loop.results(plan, std::vector<Ids>{{2}});
  EXPECT_FALSE(loop.s.alive(0));
}

SchedulerOptions two_in_flight(CacheProfile p, std::vector<GroupSpec> groups) {
  SchedulerOptions o;
  o.kv = options(p, std::move(groups), 60);
  o.kv.caching = false;
  o.token_budget = 200;
  o.steps_in_flight = 2;
  return o;
}

TEST(BlocksCatalogue, T96_swa_inflight_window_free) {
  for (const auto& [spec, expected] : {std::pair(swa(16, 16), 5), std::pair(chunked(16, 32), 6)}) {
    Loop loop(two_in_flight(CacheProfile::kA, {spec}));
    loop.add(0, tokens(100));
    const auto nulls_now = [&] {
      const Ids& table = loop.s.kv().table(0, 0).blocks;
      return std::count(table.begin(), table.end(), 0);
    };
    const StepPlan first = loop.schedule();
    EXPECT_EQ(loop.s.find(0)->in_flight, 100);
    const StepPlan second = loop.schedule();
    EXPECT_EQ(planned(second), (Tokens{1}));
    EXPECT_EQ(loop.s.find(0)->in_flight, 101);
    EXPECT_EQ(nulls_now(), 0);
    loop.results(first, std::vector<Ids>{{1}});
    EXPECT_EQ(loop.s.find(0)->in_flight, 1);
    loop.schedule();
    EXPECT_EQ(nulls_now(), expected);
    loop.results(second, std::vector<Ids>{{2}});
    loop.schedule();
    EXPECT_EQ(nulls_now(), expected);
  }
  // One step at a time the first decode drops.
  SchedulerOptions o = two_in_flight(CacheProfile::kA, {swa(16, 16)});
  o.steps_in_flight = 1;
  Loop loop(o);
  loop.add(0, tokens(100));
  loop.step();
  loop.step();
  EXPECT_EQ(
      std::count(loop.s.kv().table(0, 0).blocks.begin(), loop.s.kv().table(0, 0).blocks.end(), 0),
      5);
}

TEST(BlocksCatalogue, T96b_admission_caps_with_steps_in_flight) {
  EXPECT_EQ(admission_cap(swa(16, 1024), 1024, 16384), 129);
  EXPECT_EQ(admission_cap(swa(16, 1024), 2048, 16384), 193);
  EXPECT_EQ(admission_cap(chunked(16, 1024), 1024, 16384), 128);
  EXPECT_EQ(admission_cap(chunked(16, 1024), 2048, 16384), 192);
  for (const CacheProfile p : kBoth) {
    const Loop loop(two_in_flight(p, {swa(16, 16)}));
    EXPECT_EQ(loop.s.kv().options().cap_tokens, p == CacheProfile::kM ? 200 : 400);
  }
}

TEST(BlocksCatalogue, T97_deferred_block_free) {
  SchedulerOptions o = two_in_flight(CacheProfile::kA, {full(16)});
  o.outside_writer = true;
  const auto one = [&](Loop& loop, std::int64_t max_tokens) {
    SchedRequest r;
    r.id = 0;
    r.tokens = tokens(33);
    r.stop.max_tokens = max_tokens;
    r.stop.end_token = 2;
    loop.add(r);
  };
  {  // Stopped while a step is in flight: free when that step's results are in.
    Loop loop(o);
    one(loop, 100);
    const StepPlan first = loop.schedule();
    const StepPlan second = loop.schedule();
    loop.results(first, std::vector<Ids>{{2}});
    EXPECT_FALSE(loop.s.alive(0));
    EXPECT_EQ(loop.s.kv().pool().num_free(), 56);
    loop.results(second, std::vector<Ids>{{3}});
    EXPECT_EQ(loop.s.kv().pool().num_free(), 59);
  }
  {  // Nothing in flight: at once.
    Loop loop(o);
    one(loop, 1);
    loop.results(loop.schedule(), std::vector<Ids>{{3}});
    EXPECT_EQ(loop.s.kv().pool().num_free(), 59);
  }
  {  // Aborted: the table is empty at once, the blocks are not free yet.
    Loop loop(o);
    one(loop, 100);
    const StepPlan first = loop.schedule();
    const StepPlan second = loop.schedule();
    loop.abort(0);
    EXPECT_EQ(loop.s.kv().table(0, 0).size(), 0);
    EXPECT_EQ(loop.s.kv().pool().num_free(), 56);
    loop.results(first, std::vector<Ids>{{3}});
    EXPECT_EQ(loop.s.kv().pool().num_free(), 56);
    loop.results(second, std::vector<Ids>{{3}});
    EXPECT_EQ(loop.s.kv().pool().num_free(), 59);
  }
  {  // Nobody outside writes: at once.
    o.outside_writer = false;
    Loop loop(o);
    one(loop, 100);
    loop.schedule();
    loop.schedule();
    loop.abort(0);
    EXPECT_EQ(loop.s.kv().pool().num_free(), 59);
  }
}

TEST(BlocksCatalogue, T20_prefix_cache_stats) {
  for (const CacheProfile p : kBoth) {
    Loop loop(plain(20, 100, p));
    loop.add(0, tokens(40));
    loop.step();
    loop.add(1, tokens(40));
    loop.step();
    EXPECT_EQ(loop.s.prefix_stats().requests, 2);
    EXPECT_EQ(loop.s.prefix_stats().queries, 80);
    EXPECT_EQ(loop.s.prefix_stats().hits, 32);
    // A head that waits is counted with every lookup, or once when it gets in.
    loop.add(2, tokens(310, 5000));
    loop.step();
    loop.step();
    EXPECT_EQ(loop.s.prefix_stats().requests, p == CacheProfile::kM ? 4 : 2);
  }
  SchedulerOptions off = plain(20, 100);
  off.kv.caching = false;
  Loop loop(off);
  loop.add(0, tokens(40));
  loop.step();
  EXPECT_EQ(loop.s.prefix_stats().requests, 0);
}

TEST(BlocksScheduler, RefusesWhatItCannotServe) {
  BlockScheduler s = *BlockScheduler::make(plain(20, 100));
  SchedRequest r;
  r.id = 1;
  EXPECT_FALSE(s.add(r));
  r.tokens = tokens(8192);
  EXPECT_FALSE(s.add(r));
  r.tokens = tokens(10);
  EXPECT_TRUE(s.add(r));
  EXPECT_FALSE(s.add(r));
  EXPECT_FALSE(s.abort(2));
  SchedulerOptions bad = plain(20, 0);
  EXPECT_FALSE(BlockScheduler::make(bad));
}

}  // namespace blocks_catalogue_scheduler_test
}  // namespace attnscope::blocks_test
