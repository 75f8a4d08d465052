// The scenarios about the block manager: nothing is wrong in any of them, and each one shows what
// it is for. The session checks every invariant around every call.
#include <algorithm>

#include "tests/golden/scenario_run.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope {
namespace serving_scenario_test {

// Without the second C4A layer, which is one more of the same in every step, and narrower: blocks
// are the same.
Scenario shipped(const char* name) {
  auto scenario = load_scenario(name);
  EXPECT_TRUE(scenario) << scenario.error().text();
  if (!scenario) return {};
  std::erase(scenario->model.layers, 3);
  scenario->model = narrow_model(scenario->model.layers);
  return *scenario;
}

// Beside ref.sim alone: which block holds a row changes nothing in ref.exact, which has no formats.
RunResult checked(const Scenario& scenario) { return run_and_check(scenario, References::kSim); }

TEST(ServingScenarios, SharedPrefixesAreHitAlsoWithinOneStep) {
  const RunResult run = checked(shipped("shared_prefix"));
  EXPECT_EQ(run.serving.hits, 2);
  EXPECT_EQ(run.serving.hit_tokens, 512 + 256);
  // "twin a" and "twin b" join in one step, and "twin b" computes what follows the hit alone.
  const auto joint = std::ranges::find_if(
      run.steps, [](const StepRecord& s) { return std::ranges::find(s.live, 3) != s.live.end(); });
  ASSERT_NE(joint, run.steps.end());
}

TEST(ServingScenarios, WithoutCachingTheSamePromptsAreComputedInFull) {
  Scenario scenario = shipped("shared_prefix");
  scenario.serving.kv.caching = false;
  const RunResult run = checked(scenario);
  EXPECT_EQ(run.serving.hits, 0);
}

TEST(ServingScenarios, ASmallPoolPreemptsAndComputesAgain) {
  for (const CacheProfile profile : {CacheProfile::kA, CacheProfile::kM}) {
    Scenario scenario = shipped("small_pool");
    scenario.serving.kv.switches = switches_of(profile);
    const RunResult run = checked(scenario);
    EXPECT_GT(run.serving.preemptions, 0);
    EXPECT_GT(run.serving.recomputed, 30);
  }
}

// By priority the victim may be one that has been given tokens in the same step.
TEST(ServingScenarios, ASmallPoolTakesFromTheLeastUrgent) {
  Scenario scenario = shipped("small_pool");
  scenario.serving.policy = SchedulePolicy::kPriority;
  for (std::size_t i = 0; i < scenario.requests.size(); ++i) {
    scenario.requests[i].priority = -static_cast<std::int64_t>(i);
    scenario.requests[i].arrival_step = static_cast<std::int64_t>(2 * i);
  }
  const RunResult run = checked(scenario);
  EXPECT_GT(run.serving.preemptions, 0);
}

TEST(ServingScenarios, WindowsRecycleTheirBlocks) {
  Scenario scenario = shipped("recycling");
  scenario.model.layers = {0, 1, 2, 3};  // its pool has just the blocks of these
  const RunResult run = checked(scenario);
  EXPECT_EQ(run.serving.preemptions, 0);
}

TEST(ServingScenarios, AbortedRequestsLeaveTheirBlocksToOthers) {
  const RunResult run = checked(shipped("aborts"));
  EXPECT_EQ(run.serving.aborted, 3);
  EXPECT_EQ(run.serving.hits, 1);
  EXPECT_EQ(run.serving.hit_tokens, 256);
}

// The words of a block are not all that names it: what stands before them counts too.
TEST(ServingScenarios, EqualWordsBehindAnotherBeginningAreNotHit) {
  const Scenario scenario = shipped("chains");
  const auto& first = scenario.requests[0].tokens;
  const auto& mixed = scenario.requests[2].tokens;
  ASSERT_FALSE(std::equal(first.begin(), first.begin() + 256, mixed.begin()));
  ASSERT_TRUE(std::equal(first.begin() + 256, first.begin() + 512, mixed.begin() + 256));
  const RunResult run = checked(scenario);
  EXPECT_EQ(run.serving.hits, 1);
  EXPECT_EQ(run.serving.hit_tokens, 256);
}

TEST(ServingScenarios, SharedBlocksOutliveAHolderThatIsPreempted) {
  const RunResult run = checked(shipped("pressure"));
  EXPECT_GE(run.serving.hits, 1);
  EXPECT_GE(run.serving.preemptions, 1);
}

TEST(ServingScenarios, ChunksRunBesideDecodesByPriority) {
  const RunResult run = checked(shipped("mixed"));
  // In one step: a request that has its token, and another whose prompt goes on.
  std::int64_t mixed = 0;
  for (const StepRecord& step : run.steps) {
    const std::int64_t sampling =
        std::ranges::count_if(step.sampled, [](std::int32_t t) { return t >= 0; });
    const bool goes_on = sampling < std::ssize(step.live);
    mixed += sampling > 0 && goes_on && step.tokens > sampling + 8 ? 1 : 0;
  }
  EXPECT_GE(mixed, 5);
  const auto path = std::ranges::find(run.coverage, "prefill_beside_decode", &CoveredPath::name);
  ASSERT_NE(path, run.coverage.end());
  EXPECT_GE(path->count, 5);
  // Both arrive in step 3; the chunks of "urgent" come first.
  const auto first_of = [&](std::int32_t request) {
    for (const StepRecord& s : run.steps) {
      const auto row = std::ranges::find(s.live, request) - s.live.begin();
      if (row < std::ssize(s.live) && s.sampled[static_cast<std::size_t>(row)] >= 0) return s.step;
    }
    return std::int64_t{-1};
  };
  EXPECT_GT(first_of(2), 0);
  EXPECT_LT(first_of(2), first_of(1));
}

}  // namespace serving_scenario_test
}  // namespace attnscope
