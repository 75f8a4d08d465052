// What scheduler and block manager decide against the plain model of them: equal in every shipped
// workload and for every rule; and where they were told another rule, the decision is named.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "engine/decisions/decision_watch.h"
#include "engine/sched/workload_file.h"

namespace attnscope {
namespace decisions_test {

std::int64_t count(const DecisionCounts& counts, Decision decision) {
  return counts[static_cast<std::size_t>(decision)];
}

class Workloads : public testing::TestWithParam<std::tuple<int, CacheProfile>> {};

TEST_P(Workloads, EveryDecisionIsThePlainModels) {
  const auto [number, profile] = GetParam();
  Result<Workload> w = load_workload("g" + std::to_string(number), profile);
  ASSERT_TRUE(w) << w.error().text();
  std::shared_ptr<DecisionWatch> judge;
  WorkloadRun run;
  run.watch = [&](BlockScheduler& s) -> std::shared_ptr<SchedWatch> {
    return judge = std::make_shared<DecisionWatch>(s, output_token);
  };
  Result<WorkloadResult> result = run_workload(*w, run);
  ASSERT_TRUE(result) << result.error().text();
  ASSERT_FALSE(judge->wrong()) << "step " << judge->wrong()->step << ", "
                               << decision_name(judge->wrong()->decision) << ": "
                               << judge->wrong()->note;
  const DecisionCounts& counts = judge->counts();
  // Whoever is admitted is looked up; each step decides who runs and who waits, and what is free.
  EXPECT_GT(count(counts, Decision::kAdmission), 0);
  EXPECT_GE(count(counts, Decision::kHit), count(counts, Decision::kAdmission));
  EXPECT_EQ(count(counts, Decision::kVictim), result->preemptions);
  EXPECT_EQ(count(counts, Decision::kQueue), 2 * result->steps);
  EXPECT_EQ(count(counts, Decision::kKeys), result->steps);
  EXPECT_EQ(count(counts, Decision::kCommon), result->steps);
  EXPECT_GT(count(counts, Decision::kEviction), result->steps);
  EXPECT_EQ(count(counts, Decision::kTokens), count(counts, Decision::kStop));
}

INSTANTIATE_TEST_SUITE_P(Shipped, Workloads,
                         testing::Combine(testing::Range(1, 24),
                                          testing::Values(CacheProfile::kM, CacheProfile::kA)),
                         [](const auto& of) {
                           return "g" + std::to_string(std::get<0>(of.param)) +
                                  cache_profile_name(std::get<1>(of.param));
                         });

// A full group and a sliding one; 24 usable blocks.
SchedulerOptions options() {
  SchedulerOptions o;
  o.kv.switches = switches_of(CacheProfile::kA);
  o.kv.groups = {{GroupKind::kFull, 16, 0, false}, {GroupKind::kSliding, 16, 40, false}};
  o.kv.num_blocks = 25;
  o.kv.max_model_len = 512;
  o.token_budget = 64;
  o.max_requests = 3;
  o.whole_sequence = false;
  return *check_options(o);
}

// A scheduler, and the model that is told to go by rules of its own.
class Loop {
 public:
  Loop(const SchedulerOptions& is, const SchedulerOptions& must)
      : scheduler_(*BlockScheduler::make(is)), judge_(must, false) {}

  // model: what it is told instead.
  void add(const SchedRequest& request, const std::function<void(SchedRequest&)>& model = {}) {
    SchedRequest told = request;
    told.prompt_tokens = told.num_tokens();
    if (model) model(told);
    judge_.model().add(plain_request(told));
    ASSERT_TRUE(scheduler_.add(request));
  }
  // Until all is done or something is wrong; the k-th token that a request samples is 100 + k.
  void run(int steps = 400) {
    for (int step = 0; step < steps && !scheduler_.done() && !judge_.wrong(); ++step) {
      const StepPlan plan = scheduler_.schedule();
      judge_.planned(scheduler_, plan);
      if (judge_.wrong()) return;
      std::map<std::int64_t, std::vector<std::int32_t>> tokens;
      std::vector<std::int32_t> sampled;
      for (const ScheduledTokens& s : plan.scheduled) {
        const SchedRequest& r = scheduler_.request(s.slot);
        const bool last = r.computed >= r.num_tokens();
        sampled.push_back(last ? 100 + static_cast<std::int32_t>(r.outputs()) : kNoToken);
        if (last) tokens[s.id] = {sampled.back()};
      }
      scheduler_.results(plan, sampled);
      judge_.model().results(tokens, false);
      judge_.ended(scheduler_);
      scheduler_.take_finished();
    }
  }
  const DecisionJudge& judge() const { return judge_; }
  bool done() const { return scheduler_.done(); }

 private:
  BlockScheduler scheduler_;
  DecisionJudge judge_;
};

SchedRequest request(std::int64_t id, std::int64_t length, std::int64_t priority = 0) {
  SchedRequest r;
  r.id = id;
  r.arrival = static_cast<double>(id);
  r.priority = priority;
  r.stop.max_tokens = 30;
  for (std::int64_t t = 0; t < length; ++t) {
    r.tokens.push_back(static_cast<std::int32_t>(t < 48 ? t : 1000 * id + t));
  }
  return r;
}

TEST(Decisions, ACommonPrefixOfAnotherLengthIsNamed) {
  const SchedulerOptions o = options();
  BlockScheduler scheduler = *BlockScheduler::make(o);
  DecisionJudge judge(o, false);
  // The second finds the first two blocks of the first, and both have one of their own.
  for (std::int64_t id = 0; id < 2; ++id) {
    SchedRequest r = request(id, 40);
    r.prompt_tokens = r.num_tokens();
    judge.model().add(plain_request(r));
    ASSERT_TRUE(scheduler.add(r));
    judge.planned(scheduler, scheduler.schedule());
    ASSERT_FALSE(judge.wrong()) << judge.wrong()->note;
    scheduler.results({}, std::span<const std::int32_t>());
    judge.model().results({}, false);
  }
  StepPlan plan = scheduler.schedule();
  EXPECT_EQ(plan.common_prefix, (std::vector<std::int64_t>{2, 0}));
  plan.common_prefix[0] = 3;
  judge.planned(scheduler, plan);
  ASSERT_TRUE(judge.wrong());
  EXPECT_EQ(judge.wrong()->decision, Decision::kCommon) << judge.wrong()->note;
  EXPECT_NE(judge.wrong()->note.find("3 leading blocks of group 0"), std::string::npos)
      << judge.wrong()->note;
}

// Six requests that share a prefix; they preempt one another, since the pool is short.
void add_six(Loop& loop) {
  const std::int64_t lengths[] = {100, 70, 55, 90, 49, 130};
  for (std::int64_t id = 0; id < 6; ++id) loop.add(request(id, lengths[id], id % 3));
}

TEST(Decisions, ThoseOfOneRuleAreEqual) {
  for (const SchedulePolicy policy : {SchedulePolicy::kFcfs, SchedulePolicy::kPriority}) {
    SchedulerOptions o = options();
    o.policy = policy;
    Loop loop(o, o);
    add_six(loop);
    loop.run();
    EXPECT_TRUE(loop.done());
    ASSERT_FALSE(loop.judge().wrong()) << loop.judge().wrong()->note;
    EXPECT_GT(count(loop.judge().counts(), Decision::kVictim), 0);
  }
}

TEST(Decisions, AnotherRuleIsNamed) {
  struct Case {
    Decision decision;
    std::function<void(SchedulerOptions&)> change;
  };
  const std::vector<Case> cases = {
      {Decision::kTokens, [](SchedulerOptions& o) { ++o.token_budget; }},
      {Decision::kTokens, [](SchedulerOptions& o) { o.prefill_threshold = 20; }},
      {Decision::kAdmission, [](SchedulerOptions& o) { o.max_requests = 1; }},
      {Decision::kQueue, [](SchedulerOptions& o) { o.policy = SchedulePolicy::kPriority; }},
      {Decision::kAdmission, [](SchedulerOptions& o) { o.whole_sequence = true; }},
      {Decision::kRoom, [](SchedulerOptions& o) { o.lookahead = 16; }},
      {Decision::kWindow, [](SchedulerOptions& o) { o.kv.groups[1].window = 24; }},
      {Decision::kEviction,
       [](SchedulerOptions& o) { o.kv.switches.free_order = FreeOrder::kAppend; }},
      {Decision::kKeys, [](SchedulerOptions& o) { o.kv.caching = false; }},
      {Decision::kHit, [](SchedulerOptions& o) { o.kv.groups[0].flagged = true; }},
  };
  for (const Case& c : cases) {
    SchedulerOptions changed = options();
    c.change(changed);
    Loop loop(*check_options(changed), options());
    add_six(loop);
    loop.run();
    ASSERT_TRUE(loop.judge().wrong()) << decision_name(c.decision);
    const WrongDecision& wrong = *loop.judge().wrong();
    EXPECT_STREQ(decision_name(wrong.decision), decision_name(c.decision)) << wrong.note;
    EXPECT_GE(wrong.request, 0) << wrong.note;
    EXPECT_TRUE(wrong.note.starts_with("request " + std::to_string(wrong.request) + ": "))
        << wrong.note;
  }
}

TEST(Decisions, WhoLosesItsBlocksIsNamed) {
  SchedulerOptions fcfs = options();
  fcfs.kv.num_blocks = 20;
  SchedulerOptions by_priority = fcfs;
  by_priority.policy = SchedulePolicy::kPriority;
  // Admitted in the same order by both rules; of two that run, one takes the last one's blocks, the
  // other those of the least urgent.
  Loop loop(fcfs, by_priority);
  loop.add(request(0, 100, 5));
  loop.run(1);
  loop.add(request(1, 120, 0));
  loop.run();
  ASSERT_TRUE(loop.judge().wrong());
  EXPECT_EQ(loop.judge().wrong()->decision, Decision::kVictim) << loop.judge().wrong()->note;
  EXPECT_NE(loop.judge().wrong()->note.find("must be request 0"), std::string::npos)
      << loop.judge().wrong()->note;
}

TEST(Decisions, EveryWayToStopIsTheModels) {
  struct Case {
    const char* what;
    std::function<void(StopRule&)> rule;
    std::int64_t outputs;  // that it ends with
  };
  const std::vector<Case> cases = {
      {"length", [](StopRule& s) { s.max_tokens = 5; }, 5},
      {"end token", [](StopRule& s) { s.end_token = 103; }, 4},
      {"end token ignored",
       [](StopRule& s) {
         s.end_token = 103;
         s.ignore_end = true;
       },
       30},
      {"stop token",
       [](StopRule& s) {
         s.stop_tokens = {900, 106};
       },
       7},
      {"not before the least",
       [](StopRule& s) {
         s.stop_tokens = {101};
         s.end_token = 102;
         s.min_tokens = 4;
       },
       30},
  };
  for (const Case& c : cases) {
    SchedRequest r = request(0, 20);
    c.rule(r.stop);
    Loop same(options(), options());
    same.add(r);
    same.run();
    EXPECT_TRUE(same.done()) << c.what;
    ASSERT_FALSE(same.judge().wrong()) << c.what << ": " << same.judge().wrong()->note;
    EXPECT_EQ(same.judge().model().request(0).sampled(), c.outputs) << c.what;

    // One token more, or an end that is not seen.
    Loop late(options(), options());
    late.add(r, [](SchedRequest& told) {
      --told.stop.max_tokens;
      if (told.stop.end_token >= 0) --told.stop.end_token;
      for (std::int32_t& token : told.stop.stop_tokens) --token;
    });
    late.run();
    ASSERT_TRUE(late.judge().wrong()) << c.what;
    EXPECT_EQ(late.judge().wrong()->decision, Decision::kStop) << late.judge().wrong()->note;
    EXPECT_NE(late.judge().wrong()->note.find("goes on"), std::string::npos);
  }
}

}  // namespace decisions_test
}  // namespace attnscope
