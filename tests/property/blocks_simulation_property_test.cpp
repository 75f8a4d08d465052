// Random engines, random requests, random results: the scheduler and its block manager under every
// invariant around every call.
//
// ATTNSCOPE_PROPERTY_SEED=N gives other runs, ATTNSCOPE_SIMULATION_STEPS=5000000 a long one; a
// failure prints seed, run and step.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <memory>
#include <random>
#include <string>

#include "engine/sched/sched_invariants.h"
#include "engine/sched/step_watch.h"
#include "engine/sched/workload_file.h"

namespace attnscope {
namespace blocks_simulation_property_test {

using Random = std::mt19937_64;

std::int64_t environment(const char* name, std::int64_t fallback) {
  const char* text = std::getenv(name);
  return text == nullptr ? fallback : std::strtoll(text, nullptr, 10);
}

std::int64_t below(Random& random, std::int64_t limit) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit));
}
bool one_in(Random& random, std::int64_t n) { return below(random, n) == 0; }

GroupSpec random_group(Random& random, bool mixed) {
  GroupSpec g;
  g.block_tokens = mixed ? 1 << below(random, 4) : 4;
  if (one_in(random, 3)) return g;
  g.kind = GroupKind::kSliding;
  g.window = static_cast<std::int32_t>(1 + below(random, 24));
  if (!mixed && one_in(random, 4)) g.kind = GroupKind::kChunked;
  if (one_in(random, 4)) {
    g.kind = GroupKind::kFirst;
    g.window = g.block_tokens * static_cast<std::int32_t>(1 + below(random, 6));
  }
  return g;
}

SchedulerOptions random_options(Random& random) {
  SchedulerOptions o;
  KvOptions& kv = o.kv;
  kv.switches = switches_of(one_in(random, 2) ? CacheProfile::kA : CacheProfile::kM);
  if (one_in(random, 8)) kv.switches.free_order = FreeOrder::kLifoWhenUncached;
  if (one_in(random, 8)) kv.switches.full_trim = FullTrim::kStoredLength;
  const bool mixed = one_in(random, 2);
  const std::int64_t groups = 1 + below(random, 3);
  for (std::int64_t g = 0; g < groups; ++g) kv.groups.push_back(random_group(random, mixed));
  if (one_in(random, 4)) {
    GroupSpec& g = kv.groups[static_cast<std::size_t>(below(random, groups))];
    g.flagged = g.kind == GroupKind::kFull || g.kind == GroupKind::kSliding;
    o.lookahead = below(random, 4);
  }
  kv.num_blocks = 12 + below(random, 50) * groups;
  kv.max_model_len = 24 + below(random, 120);
  kv.caching = !one_in(random, 6);
  if (one_in(random, 4)) kv.retention = 8 * below(random, 4);
  if (one_in(random, 4)) kv.watermark = 0.01 * static_cast<double>(below(random, 20));
  o.token_budget = 4 + below(random, 60);
  o.max_requests = 1 + below(random, 6);
  o.policy = one_in(random, 2) ? SchedulePolicy::kPriority : SchedulePolicy::kFcfs;
  o.whole_sequence = !one_in(random, 3);
  if (one_in(random, 5)) {
    o.prefill_threshold = 1 + below(random, 20);
  } else if (one_in(random, 5)) {
    o.chunks.least = 1 + below(random, 8);
    o.chunks.most = o.chunks.least + below(random, 60);
  }
  if (one_in(random, 4)) {
    o.steps_in_flight = 2;
    o.outside_writer = one_in(random, 2);
  } else if (!kv.caching || one_in(random, 5)) {
    kv.caching = false;
    o.swap_blocks = 1 + below(random, 40);
  }
  return o;
}

SchedRequest random_request(Random& random, const SchedulerOptions& o, std::int64_t id) {
  SchedRequest r;
  r.id = id;
  r.arrival = static_cast<double>(id);
  r.priority = below(random, 3);
  const std::int64_t length = 1 + below(random, o.kv.max_model_len - 1);
  // Few families with few branches, so that prompts share.
  const std::int64_t family = below(random, 3);
  const std::int64_t branch = below(random, length + 1);
  for (std::int64_t p = 0; p < length; ++p) {
    r.tokens.push_back(
        static_cast<std::int32_t>(p < branch ? family * 1000 + p : 1000000 * id + p));
  }
  r.stop.max_tokens = 1 + below(random, 12);
  r.skip_lookup = one_in(random, 20);
  return r;
}

BlockScheduler random_engine(Random& random) {
  for (;;) {
    auto made = BlockScheduler::make(random_options(random));
    if (made) return *std::move(made);
  }
}

// One engine for some steps. Returns what was violated, with the step.
std::string run_engine(Random& random, std::int64_t steps, std::int64_t* done) {
  BlockScheduler s = random_engine(random);
  SchedAuditor audit(s, true);
  const SchedulerOptions& o = s.options();
  std::int64_t next_id = 0;
  std::int64_t stuck = 0;
  std::deque<StepPlan> in_flight;
  const auto collect = [&] {
    const StepPlan plan = in_flight.front();
    in_flight.pop_front();
    std::vector<std::int32_t> sampled;
    for (const ScheduledTokens& t : plan.scheduled) {
      const SchedRequest& r = s.request(t.slot);
      const bool ready = r.id == t.id && r.computed >= r.num_tokens() && r.computed > 0;
      sampled.push_back(ready ? static_cast<std::int32_t>(below(random, 5)) : kNoToken);
    }
    s.results(plan, sampled);
    audit.after_results(plan);
  };
  std::int64_t step = 0;
  for (; step < steps && audit.go_on(); ++step) {
    while (next_id < 3 || (one_in(random, 3) && s.waiting().size() < 8)) {
      if (s.add(random_request(random, o, next_id++))) audit.after_change();
    }
    if (one_in(random, 12) && s.abort(below(random, next_id))) audit.after_change();
    if (one_in(random, 200) && in_flight.empty()) {
      s.reset_prefix_cache(one_in(random, 2));
      audit.after_change();
    }
    audit.before_schedule();
    in_flight.push_back(s.schedule());
    audit.after_schedule(in_flight.back());
    // A request larger than the pool would stop all others for good.
    stuck = in_flight.back().scheduled.empty() ? stuck + 1 : 0;
    if (static_cast<std::int64_t>(in_flight.size()) >= o.steps_in_flight) collect();
    if (stuck > 4 && !s.waiting().empty()) {
      s.abort(s.request(s.waiting().front()).id);
      audit.after_change();
      stuck = 0;
    }
  }
  while (!in_flight.empty() && audit.go_on()) collect();
  for (std::int64_t id = 0; id < next_id && audit.go_on(); ++id) {
    if (s.abort(id)) audit.after_change();
  }
  *done += step;
  if (audit.go_on() && s.kv().pool().num_free() != o.kv.num_blocks - 1) {
    return "I17 quiescence: blocks are held by nobody";
  }
  if (audit.go_on()) return {};
  std::string text = "step " + std::to_string(step) + ": ";
  for (const Violation& v : audit.findings()) text += v.text() + "; ";
  return text;
}

TEST(BlocksSimulation, InvariantsHoldAfterEveryCall) {
  const std::int64_t wanted = environment("ATTNSCOPE_SIMULATION_STEPS", 200000);
  const std::int64_t seed = environment("ATTNSCOPE_PROPERTY_SEED", 1);
  std::cout << "seed " << seed << ", " << wanted << " steps\n";
  std::int64_t done = 0;
  for (std::int64_t run = 0; done < wanted; ++run) {
    Random random(static_cast<std::uint64_t>(seed) * 1000003 + static_cast<std::uint64_t>(run));
    const std::string violated =
        run_engine(random, std::min<std::int64_t>(500, wanted - done), &done);
    ASSERT_EQ(violated, "") << "seed " << seed << ", run " << run;
  }
}

// Workloads with recorded digests: the recording engine kept these invariants too.
class BlocksAudited : public testing::TestWithParam<const char*> {};

TEST_P(BlocksAudited, InvariantsHoldInEveryCall) {
  for (const CacheProfile profile : {CacheProfile::kM, CacheProfile::kA}) {
    Result<Workload> w = load_workload(GetParam(), profile);
    ASSERT_TRUE(w) << w.error().text();
    std::shared_ptr<SchedAuditor> auditor;
    WorkloadRun run;
    run.watch = [&](BlockScheduler& s) -> std::shared_ptr<SchedWatch> {
      return auditor = std::make_shared<SchedAuditor>(s, true);
    };
    ASSERT_TRUE(run_workload(*w, run));
    for (const Violation& v : auditor->findings()) ADD_FAILURE() << v.text();
    EXPECT_GT(auditor->calls(), 1000);
  }
}

INSTANTIATE_TEST_SUITE_P(Workloads, BlocksAudited,
                         testing::Values("g1", "g2", "g3", "g5", "g6", "g7", "g8", "g12", "g13",
                                         "g15", "g17", "g18", "g19", "g23"));

// The checks of every step find nothing to object to either, and cost little.
TEST(BlocksWatch, StepsAndWalksAreClean) {
  for (const char* name : {"g2", "g4", "g8", "g9", "g10", "g11", "g15", "g16", "g20", "g22"}) {
    for (const CacheProfile profile : {CacheProfile::kM, CacheProfile::kA}) {
      Result<Workload> w = load_workload(name, profile);
      ASSERT_TRUE(w) << w.error().text();
      std::shared_ptr<StepWatch> watch;
      WorkloadRun run;
      run.watch = [&](BlockScheduler& s) -> std::shared_ptr<SchedWatch> {
        return watch = std::make_shared<StepWatch>(s, 100);
      };
      const Result<WorkloadResult> r = run_workload(*w, run);
      ASSERT_TRUE(r);
      for (const Violation& v : watch->findings()) ADD_FAILURE() << name << ": " << v.text();
      EXPECT_EQ(watch->steps(), r->steps);
      EXPECT_EQ(watch->full_walks(), r->steps / 100);
    }
  }
}

}  // namespace blocks_simulation_property_test
}  // namespace attnscope
