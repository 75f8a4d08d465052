// Bugs that only some traffic reaches are named in the scenario that is there for them, and all
// scenarios together leave no path open.
#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include "app/reports/explain_call.h"
#include "engine/family/models.h"
#include "engine/session/coverage.h"
#include "kernels/mutants/mutants.h"
#include "tests/golden/scenario_run.h"

namespace attnscope {
namespace rare_mutants_test {

// Who is blamed first, what ran before that, and what its call is explained by.
struct Shown {
  std::vector<Blame> blamed;
  std::int64_t steps = 0;
  Explanation why;
};

Explanation explained(const Session& session) {
  const OpParams& params = session.last_called();
  const auto kept = keep_case(*find_case_op(params.op()), params.data(), {"session", "", 0, 0});
  EXPECT_TRUE(kept) << kept.error().text();
  if (!kept) return {};
  auto why = explain_call(*kept, all_lanes(), session.parts().tolerances, session.parts().threads);
  EXPECT_TRUE(why) << why.error().text();
  return why ? std::move(*why) : Explanation{};
}

Shown first_blamed(const std::string& scenario_name, const mutants::RareMutant& mutant) {
  Shown shown;
  auto scenario = load_scenario(scenario_name);
  EXPECT_TRUE(scenario) << scenario.error().text();
  if (!scenario) return shown;
  // What an indexer scores and selects on long prompts is the same without the other layers, and
  // with one head in attention, which would take most of the time.
  if (mutant.op == AS_OP_INDEXER_LOGITS || mutant.op == AS_OP_INDEXER_TOPK) {
    scenario->model.layers = {1};
    scenario->model.heads = scenario->model.o_groups = 1;
  }
  SessionOptions options;
  options.references = References::kSim;
  options.rewind_every = 0;
  options.lanes = {"cpu", std::string(as_op_find(mutant.op)->name) + "=" + mutant.lane.name};
  auto session = Session::create(*scenario, all_lanes(), options);
  EXPECT_TRUE(session) << session.error().text();
  while (session && !(*session)->finished() && shown.blamed.empty()) {
    const auto ran = (*session)->op();
    EXPECT_TRUE(ran) << ran.error().text();
    if (!ran) break;
    const bool ended = !(*session)->current().timings.empty();
    shown.steps = static_cast<std::int64_t>((*session)->history().size());
    shown.blamed =
        blame(ended ? (*session)->current_results() : (*session)->history().back().results);
    if (!shown.blamed.empty()) shown.why = explained(**session);
  }
  return shown;
}

class RareMutants : public testing::TestWithParam<std::size_t> {};

TEST_P(RareMutants, AreNamedInTheirScenario) {
  const mutants::RareMutant& mutant = mutants::rare()[GetParam()];
  const Shown shown = first_blamed(mutant.scenario, mutant);
  ASSERT_EQ(shown.blamed.size(), 1u) << mutant.scenario << " does not reach it";
  EXPECT_EQ(shown.blamed[0].op, mutant.op) << shown.blamed[0].sentence();
  EXPECT_FALSE(shown.blamed[0].cache) << shown.blamed[0].sentence();
  // Two read rows that a right call does not and a case has not; one shows where the op is asked
  // once more, over rows of NaN.
  const std::string name = mutant.lane.name;
  const auto& likely = shown.why.hypotheses.likely;
  const auto rank = std::ranges::find(likely, name, &Hypothesis::lane) - likely.begin();
  const std::set<std::string> blinds = {"mutant:page_offset_in_32_bits",
                                        "mutant:chunk_at_3_pools_older",
                                        "mutant:nan_code_as_number"};
  const bool blind = blinds.contains(name);
  EXPECT_EQ(rank >= std::min(std::ssize(likely), std::ptrdiff_t{kShownHypotheses}), blind)
      << name << " is not among the causes";
  // Bytes of rows that follow from a row of their own tell mistakes apart, too.
  if (mutant.op == AS_OP_ROPE_KV_INSERT) {
    EXPECT_EQ(likely.size(), 1u);
  }
}

std::string mutant_name(const testing::TestParamInfo<std::size_t>& index) {
  return std::string(mutants::rare()[index.param].lane.name).substr(7);
}

INSTANTIATE_TEST_SUITE_P(All, RareMutants, testing::Range<std::size_t>(0, mutants::rare().size()),
                         mutant_name);

TEST(RareMutants, HaveNamesAndScenarios) {
  std::set<std::string> names;
  const std::vector<std::string> scenarios = scenario_names();
  for (const mutants::RareMutant& mutant : mutants::rare()) {
    EXPECT_TRUE(names.insert(mutant.lane.name).second) << mutant.lane.name;
    EXPECT_TRUE(std::ranges::find(scenarios, mutant.scenario) != scenarios.end());
    EXPECT_NE(all_lanes().find(mutant.lane.name), nullptr) << mutant.lane.name;
  }
  EXPECT_GE(names.size(), 12u);
}

// Scores of both signs that no exponential of a float holds.
TEST(Scenarios, LargeScoresHaveNothingWrongAndReachBothEnds) {
  const auto scenario = load_scenario("large_scores");
  ASSERT_TRUE(scenario) << scenario.error().text();
  const RunResult run = run_and_check(*scenario);
  double low = 0, high = 0;
  for (const LayerDistributions& d : run.distributions.layers()) {
    low = std::min(low, quantiles(d.lse).min);
    high = std::max(high, quantiles(d.lse).max);
  }
  EXPECT_LT(low, -850);
  EXPECT_GT(high, 850);
  // Bytes 128 apart have equal logits, and the lower one wins.
  for (const StepRecord& step : run.steps) {
    for (const std::int32_t token : step.sampled) EXPECT_LT(token, 128);
  }
}

TEST(Scenarios, HighBlocksHaveNothingWrong) {
  const auto scenario = load_scenario("high_blocks");
  ASSERT_TRUE(scenario) << scenario.error().text();
  EXPECT_GT(scenario->first_block * build_cache_layout(scenario->model).block_stride,
            std::int64_t{1} << 32);
  // Forgets the peak of what ran before in this process.
  std::ofstream("/proc/self/clear_refs") << "5";
  const RunResult run = run_and_check(*scenario);
  // The memory before the first block is not there.
  EXPECT_LT(run.peak_bytes, std::int64_t{2} << 30);
}

TEST(Scenarios, OddChunksHaveNothingWrong) {
  const auto scenario = load_scenario("odd_chunks");
  ASSERT_TRUE(scenario) << scenario.error().text();
  const RunResult run = run_and_check(*scenario);
  EXPECT_GT(run.serving.accepted, 0);
  EXPECT_GT(run.serving.drafted, run.serving.accepted);
}

// Every scenario that ships but the one of real size, as the engine runs it.
TEST(ExerciseCoverage, AllScenariosTogetherLeaveNoPathOpen) {
  std::map<std::string, std::int64_t> counts;
  std::map<std::string, std::string> where;
  for (const std::string& name : scenario_names()) {
    if (name == "flash") continue;
    const auto scenario = load_scenario(name);
    ASSERT_TRUE(scenario) << scenario.error().text();
    RunOptions options;
    options.session.references = References::kNone;
    options.session.invariants = Invariants::kOff;
    const auto run = run_scenario(*scenario, all_lanes(), options, {});
    ASSERT_TRUE(run) << name << ": " << run.error().text();
    ASSERT_FALSE(run->error) << name << ": " << run->error->text();
    for (const CoveredPath& e : run->coverage) {
      counts[e.name] += e.count;
      if (e.count > 0 && where[e.name].empty()) where[e.name] = name;
    }
  }
  EXPECT_EQ(counts.size(), kPaths);
  for (const auto& [path, count] : counts) EXPECT_GT(count, 0) << path;
}

}  // namespace rare_mutants_test
}  // namespace attnscope
