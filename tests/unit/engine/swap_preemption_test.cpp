// Preempted requests whose rows lie in host memory until they come back: which blocks go where,
// what is refused, what comes out of a whole workload, and that the plain model names what is not
// so.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/cache/event_log.h"
#include "engine/decisions/decision_watch.h"
#include "engine/decisions/replay_judge.h"
#include "engine/sched/explain.h"
#include "engine/sched/replay.h"
#include "engine/sched/sched_invariants.h"
#include "engine/sched/workload_file.h"

namespace attnscope {
namespace swap_preemption_test {

// A full group and a sliding one of blocks of 16 tokens; ten blocks, and as many of the host as are
// asked for.
SchedulerOptions options(std::int64_t host_blocks) {
  SchedulerOptions o;
  o.kv.switches = switches_of(CacheProfile::kM);
  o.kv.groups = {{GroupKind::kFull, 16, 0, false}, {GroupKind::kSliding, 16, 16, false}};
  o.kv.num_blocks = 11;
  o.kv.max_model_len = 256;
  o.kv.caching = false;
  o.token_budget = 64;
  o.max_requests = 4;
  o.swap_blocks = host_blocks;
  return o;
}

SchedRequest request(std::int64_t id, std::int64_t length, std::int64_t outputs = 40) {
  SchedRequest r;
  r.id = id;
  r.arrival = static_cast<double>(id);
  r.stop.max_tokens = outputs;
  for (std::int64_t t = 0; t < length; ++t) {
    r.tokens.push_back(static_cast<std::int32_t>(1000 * id + t));
  }
  return r;
}

// Steps under all invariants and beside the plain model.
class Loop {
 public:
  explicit Loop(const SchedulerOptions& o)
      : s(*BlockScheduler::make(o)), audit(s), judge(s, sample) {}
  ~Loop() {
    for (const Violation& v : audit.findings()) ADD_FAILURE() << v.text();
    if (judge.wrong())
      ADD_FAILURE() << "step " << judge.wrong()->step << ": " << judge.wrong()->note;
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  static std::int32_t sample(std::int64_t request, std::int64_t k) {
    return static_cast<std::int32_t>(100 * request + k);
  }
  void add(SchedRequest r) {
    ASSERT_TRUE(s.add(std::move(r)));
    changed();
  }
  void changed() {
    audit.after_change();
    judge.after_change();
  }
  StepPlan step() {
    audit.before_schedule();
    StepPlan plan = s.schedule();
    audit.after_schedule(plan);
    judge.after_schedule(plan);
    std::vector<std::int32_t> sampled;
    for (const ScheduledTokens& t : plan.scheduled) {
      const SchedRequest& r = s.request(t.slot);
      sampled.push_back(r.computed >= r.num_tokens() ? sample(r.id, r.outputs()) : kNoToken);
    }
    s.results(plan, sampled);
    s.take_finished();
    audit.after_results(plan);
    judge.after_results(plan);
    return plan;
  }

  BlockScheduler s;
  SchedAuditor audit;
  DecisionWatch judge;
};

// The first step that preempts somebody.
StepPlan until_preempted(Loop& loop) {
  for (int i = 0; i < 200; ++i) {
    StepPlan plan = loop.step();
    if (!plan.preempted.empty()) return plan;
  }
  ADD_FAILURE() << "nobody is preempted";
  return {};
}

TEST(SwapPreemption, TakesWhatIsInSightAndBringsItBack) {
  Loop loop(options(6));
  CacheEventLog log;
  loop.s.kv().pool().set_observer(&log);
  loop.add(request(0, 30));
  loop.add(request(1, 30));
  const StepPlan out = until_preempted(loop);
  ASSERT_EQ(out.preempted, (std::vector<std::int64_t>{1}));
  const SchedRequest& lost = *loop.s.find(1);
  const std::int64_t tokens = lost.swapped_tokens;
  // With its 49th token request 0 needs two blocks, where one is free.
  EXPECT_EQ(tokens, 48);
  EXPECT_EQ(lost.computed, 0);
  EXPECT_EQ(lost.swaps, 1);
  // Three blocks of the full group. The token at 48 sees the positions from 33 on: one of the
  // other.
  ASSERT_EQ(lost.swapped.size(), 2u);
  EXPECT_EQ(lost.swapped[0].nulls, 0);
  EXPECT_EQ(lost.swapped[0].blocks, (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(lost.swapped[1].nulls, 2);
  EXPECT_EQ(lost.swapped[1].blocks, (std::vector<std::int32_t>{3}));
  EXPECT_EQ(loop.s.host_blocks().num_free(), 2);
  ASSERT_EQ(out.swapped_out.size(), 4u);
  EXPECT_EQ(out.swapped_out[3].group, 1);
  EXPECT_EQ(out.swapped_out[3].index, 2);
  EXPECT_EQ(out.swapped_out[3].host, 3);
  EXPECT_TRUE(out.swapped_in.empty());

  const AdmissionReport why = explain_admission(loop.s);
  EXPECT_EQ(why.swapped, tokens);
  EXPECT_EQ(why.host_blocks, 4);
  EXPECT_NE(admission_text(why).find("rows of 48 of its tokens come back from 4 host blocks"),
            std::string::npos)
      << admission_text(why);
  ASSERT_EQ(preemption_costs(loop.s).size(), 1u);
  EXPECT_EQ(preemption_costs(loop.s)[0].swaps, 1);

  StepPlan in;
  for (int i = 0; i < 60 && in.swapped_in.empty(); ++i) in = loop.step();
  ASSERT_EQ(in.swapped_in.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(in.swapped_in[i].host, out.swapped_out[i].host);
    EXPECT_EQ(in.swapped_in[i].group, out.swapped_out[i].group);
    EXPECT_EQ(in.swapped_in[i].index, out.swapped_out[i].index);
  }
  EXPECT_EQ(in.scheduled.back().id, 1);
  EXPECT_EQ(in.scheduled.back().tokens, 1);  // the one that it has sampled and not computed
  EXPECT_EQ(loop.s.find(1)->recomputed, 0);
  EXPECT_EQ(loop.s.host_blocks().num_free(), 6);
  std::int64_t went = 0, came = 0;
  for (const CacheEvent& e : log.events()) {
    went += e.kind == CacheEventKind::kSwapOut ? 1 : 0;
    came += e.kind == CacheEventKind::kSwapIn ? 1 : 0;
    if (e.kind == CacheEventKind::kPreempt) {
      EXPECT_EQ(e.value, 0);
    }
  }
  EXPECT_EQ(went, 4);
  EXPECT_EQ(came, 4);
  loop.s.kv().pool().set_observer(nullptr);
  while (!loop.s.done()) loop.step();
  EXPECT_EQ(loop.s.counters().recomputed_tokens, 0);
}

// A group of first tokens holds no more blocks than those fill, however long a request has become.
TEST(SwapPreemption, FirstTokensTakeTheirOwnBlocksWithThem) {
  SchedulerOptions o = options(8);
  o.kv.groups.push_back({GroupKind::kFirst, 16, 32, false});
  o.kv.num_blocks = 15;
  Loop loop(o);
  loop.add(request(0, 30));
  loop.add(request(1, 30));
  const StepPlan out = until_preempted(loop);
  ASSERT_EQ(out.preempted, (std::vector<std::int64_t>{1}));
  EXPECT_EQ(loop.s.find(1)->swapped_tokens, 48);
  const SwappedTable& first = loop.s.find(1)->swapped[2];
  EXPECT_EQ(first.nulls, 0);
  EXPECT_EQ(first.blocks, (std::vector<std::int32_t>{4, 5}));
  StepPlan in;
  for (int i = 0; i < 60 && in.swapped_in.empty(); ++i) in = loop.step();
  EXPECT_EQ(in.swapped_in.size(), 6u);
}

TEST(SwapPreemption, IsRefusedWhereTheHostHasNoRoom) {
  Loop loop(options(3));  // one block less than it takes
  loop.add(request(0, 30));
  loop.add(request(1, 30));
  const StepPlan plan = until_preempted(loop);
  EXPECT_TRUE(plan.swapped_out.empty());
  EXPECT_EQ(loop.s.find(1)->swapped_tokens, 0);
  EXPECT_EQ(loop.s.counters().swaps_refused, 1);
  EXPECT_EQ(loop.s.host_blocks().num_free(), 3);
  while (!loop.s.done()) loop.step();
  EXPECT_GE(loop.s.counters().recomputed_tokens, 48);
}

TEST(SwapPreemption, AnAbortedRequestGivesItsHostBlocksBack) {
  Loop loop(options(6));
  loop.add(request(0, 30));
  loop.add(request(1, 30));
  until_preempted(loop);
  ASSERT_EQ(loop.s.host_blocks().num_free(), 2);
  ASSERT_TRUE(loop.s.abort(1));
  loop.changed();
  EXPECT_EQ(loop.s.host_blocks().num_free(), 6);
}

// A reset is no step: nobody would copy rows then.
TEST(SwapPreemption, AResetKeepsNothing) {
  Loop loop(options(6));
  loop.add(request(0, 30));
  loop.step();
  EXPECT_TRUE(loop.s.reset_prefix_cache(true));
  EXPECT_EQ(loop.s.find(0)->swapped_tokens, 0);
  EXPECT_EQ(loop.s.host_blocks().num_free(), 6);
}

Workload workload(std::int64_t host_blocks) {
  Workload w = *load_workload("g1", CacheProfile::kM);
  w.options.kv.num_blocks = 60;
  w.options.kv.caching = false;
  w.options.swap_blocks = host_blocks;
  return w;
}

WorkloadResult judged(const Workload& w) {
  std::shared_ptr<DecisionWatch> judge;
  WorkloadRun run;
  run.watch = [&](BlockScheduler& s) -> std::shared_ptr<SchedWatch> {
    return judge = std::make_shared<DecisionWatch>(s, output_token);
  };
  const Result<WorkloadResult> result = run_workload(w, run);
  EXPECT_TRUE(result) << result.error().text();
  if (judge->wrong()) ADD_FAILURE() << judge->wrong()->note;
  EXPECT_EQ(judge->counts()[static_cast<std::size_t>(Decision::kSwap)],
            result->blocks_out + result->blocks_in);
  return *result;
}

TEST(SwapPreemption, OfAWorkloadComputesNothingTwice) {
  const WorkloadResult anew = judged(workload(0));
  ASSERT_GT(anew.preemptions, 0);
  ASSERT_GT(anew.recomputed_tokens, 0);
  const WorkloadResult swapped = judged(workload(4096));
  EXPECT_GT(swapped.blocks_out, 0);
  EXPECT_EQ(swapped.swaps_refused, 0);
  EXPECT_EQ(swapped.recomputed_tokens, 0);
  EXPECT_LT(swapped.scheduled_tokens, anew.scheduled_tokens);
  EXPECT_LE(swapped.most_host_blocks, 4096);
  // With little room some come back and others are computed anew.
  const WorkloadResult both =
      judged(workload(std::max<std::int64_t>(1, swapped.most_host_blocks / 2)));
  EXPECT_GT(both.blocks_out, 0);
  EXPECT_LE(both.most_host_blocks, std::max<std::int64_t>(1, swapped.most_host_blocks / 2));
}

TEST(SwapPreemption, AnotherMoveIsNamed) {
  const SchedulerOptions o = *check_options(options(6));
  for (const int what : {0, 1, 2}) {
    BlockScheduler s = *BlockScheduler::make(o);
    DecisionWatch judge(s, Loop::sample);
    for (const std::int64_t id : {0, 1}) {
      ASSERT_TRUE(s.add(request(id, 30)));
      judge.after_change();
    }
    for (int i = 0; i < 200 && !judge.wrong(); ++i) {
      StepPlan plan = s.schedule();
      StepPlan told = plan;
      if (!told.swapped_out.empty() && what == 0) ++told.swapped_out[1].host;
      if (!told.swapped_out.empty() && what == 1) told.swapped_out.pop_back();
      if (!told.swapped_in.empty() && what == 2) {
        std::swap(told.swapped_in[0].block, told.swapped_in[1].block);
      }
      judge.after_schedule(told);
      std::vector<std::int32_t> sampled;
      for (const ScheduledTokens& t : plan.scheduled) {
        const SchedRequest& r = s.request(t.slot);
        sampled.push_back(r.computed >= r.num_tokens() ? Loop::sample(r.id, r.outputs())
                                                       : kNoToken);
      }
      s.results(plan, sampled);
      judge.after_results(plan);
    }
    ASSERT_TRUE(judge.wrong()) << what;
    EXPECT_EQ(judge.wrong()->decision, Decision::kSwap) << judge.wrong()->note;
    EXPECT_EQ(judge.wrong()->request, 1);
    EXPECT_NE(judge.wrong()->note.find(what == 2 ? "from host block" : "to host block"),
              std::string::npos)
        << judge.wrong()->note;
  }
}

TEST(SwapPreemption, InvariantsSeeAMoveToAnotherBlock) {
  BlockScheduler s = *BlockScheduler::make(*check_options(options(6)));
  ASSERT_TRUE(s.add(request(0, 30)));
  ASSERT_TRUE(s.add(request(1, 30)));
  bool out = false, in = false;
  for (int i = 0; i < 200 && !in; ++i) {
    StepPlan plan = s.schedule();
    ASSERT_FALSE(check_swaps(s, plan));
    ASSERT_FALSE(check_host_blocks(s));
    if (!plan.swapped_out.empty()) {
      out = true;
      StepPlan other = plan;
      other.swapped_out[0].request = 0;  // who was not preempted
      EXPECT_TRUE(check_swaps(s, other));
      // The same host block twice.
      BlockScheduler twice = s;
      twice.find(1)->swapped[1].blocks[0] = twice.find(1)->swapped[0].blocks[0];
      EXPECT_TRUE(check_host_blocks(twice));
      BlockScheduler short_of_rows = s;
      short_of_rows.find(1)->swapped[0].blocks.pop_back();
      EXPECT_TRUE(check_host_blocks(short_of_rows));
    }
    if (!plan.swapped_in.empty()) {
      in = true;
      StepPlan other = plan;
      ++other.swapped_in[0].index;
      EXPECT_TRUE(check_swaps(s, other));
      other = plan;
      other.swapped_out = plan.swapped_in;
      EXPECT_TRUE(check_swaps(s, other));
    }
    std::vector<std::int32_t> sampled(plan.scheduled.size(), 7);
    for (std::size_t k = 0; k < sampled.size(); ++k) {
      const SchedRequest& r = s.request(plan.scheduled[k].slot);
      if (r.computed < r.num_tokens()) sampled[k] = kNoToken;
    }
    s.results(plan, sampled);
  }
  EXPECT_TRUE(out);
  EXPECT_TRUE(in);
}

TEST(SwapPreemption, WhatCannotBeIsRefused) {
  const auto refused = [](const SchedulerOptions& o) {
    const auto checked = check_options(o);
    return checked ? std::string() : checked.error().text();
  };
  EXPECT_EQ(refused(options(6)), "");
  SchedulerOptions caching = options(6);
  caching.kv.caching = true;
  EXPECT_NE(refused(caching).find("set caching to false"), std::string::npos) << refused(caching);
  SchedulerOptions flight = options(6);
  flight.steps_in_flight = 2;
  EXPECT_NE(refused(flight).find("2 steps are in flight"), std::string::npos) << refused(flight);
  EXPECT_NE(refused(options(-1)).find("swap_blocks is -1"), std::string::npos);

  const std::string engine =
      R"({"groups": [{"kind": "full", "block_size": 16}], "blocks": 9, "token_budget": 64,
          "max_seqs": 4, "caching": false, "requests": 2, "S": 1, "T": 20, "O": 20, )";
  const auto parsed = [&](const std::string& keys) {
    const auto w = parse_workload(engine + keys + "}", "w.json", std::nullopt);
    return w ? std::string() : w.error().text();
  };
  EXPECT_EQ(parsed(R"("preemption": "swap", "swap_blocks": 8)"), "");
  EXPECT_EQ(parsed(R"("preemption": "recompute")"), "");
  EXPECT_NE(parsed(R"("swap_blocks": 8)").find("nothing is swapped"), std::string::npos);
  EXPECT_NE(parsed(R"("preemption": "swap")").find("swap_blocks"), std::string::npos);
  EXPECT_NE(parsed(R"("preemption": "swap", "swap_blocks": 0)").find("swap_blocks"),
            std::string::npos);
  EXPECT_NE(parsed(R"("preemption": "drop")").find("recompute, swap"), std::string::npos);
}

TEST(SwapPreemption, AReplayTellsTheMovesAndIsJudged) {
  std::string text =
      R"({"format": "attnscope-blocks-replay", "version": 1, "groups": [{"kind": "full", )"
      R"("block_size": 16}], "blocks": 5, "token_budget": 64, "max_seqs": 4, "caching": false, )"
      R"("preemption": "swap", "swap_blocks": 3})"
      "\n";
  text += R"({"call": "add", "id": 0, "prompt_range": [0, 30], "max_tokens": 20})"
          "\n";
  text += R"({"call": "add", "id": 1, "prompt_range": [50, 80], "max_tokens": 20})"
          "\n";
  text += R"({"call": "schedule", "expect": {"swapped_out": [], "free": 0}})"
          "\n";
  text += R"({"call": "results", "tokens": {"0": [9], "1": [9]}})"
          "\n";
  text += R"({"call": "schedule"})"
          "\n";
  text += R"({"call": "results", "tokens": {"0": [9], "1": [9]}})"
          "\n";
  // The 33rd token of request 0 needs a block.
  text += R"({"call": "schedule", "expect": {"preempted": [1], "swapped_in": [], "swapped_out": )"
          R"([{"id": 1, "group": 0, "entry": 0, "block": 3, "host": 0}, )"
          R"({"id": 1, "group": 0, "entry": 1, "block": 4, "host": 1}]}})"
          "\n";
  text += R"({"call": "abort", "id": 0})"
          "\n";
  text +=
      R"({"call": "schedule", "expect": {"scheduled": [{"id": 1, "tokens": 1, "admitted": true, )"
      R"("hit_tokens": 0}]}})"
      "\n";
  const Result<Replay> replay = parse_replay(text, "swap.jsonl");
  ASSERT_TRUE(replay) << replay.error().text();
  Result<ReplayJudge> judge = ReplayJudge::make(*replay);
  ASSERT_TRUE(judge);
  const Result<ReplayOutcome> outcome = run_replay(*replay, &*judge);
  ASSERT_TRUE(outcome) << outcome.error().text();
  for (const ReplayMismatch& m : outcome->mismatches) ADD_FAILURE() << m.line << ": " << m.what;
  EXPECT_FALSE(judge->wrong()) << judge->wrong()->note;
  EXPECT_NE(outcome->lines.find(R"("swapped_in":[{"id":1,"group":0,"entry":0,)"), std::string::npos)
      << outcome->lines;
}

}  // namespace swap_preemption_test
}  // namespace attnscope
