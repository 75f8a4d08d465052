// Bugs of the plan of attention, each in sessions with a plan: its op alone is blamed, also for
// what follows in the step. Sound runs by either rule blame nobody, and have the tokens of a run
// without a plan.
#include "tests/blame/trial.h"

namespace attnscope {
namespace plan_bugs_test {

constexpr const char* kProfiles[] = {"vllm,attention_plan=flashmla,multiprocessors=8",
                                     "vllm,attention_plan=flashmla", "vllm,attention_plan=own"};

std::vector<Planted> plan_planted() {
  std::vector<Planted> all;
  for (const mutants::RareMutant& mutant : mutants::rare()) {
    if (std::string_view(mutant.scenario) != "attention_plan") continue;
    all.push_back({mutant.lane.name, mutant.op, mutant.op});
  }
  return all;
}

TEST(PlanBugs, EachIsNamedWhereItShows) {
  std::map<std::string, int> shown;
  for (const char* profile : kProfiles) {
    Trial trial(session_of(tiny_scenario(7, 396, profile)));
    for (const Planted& bug : plan_planted()) {
      SCOPED_TRACE(std::string(profile) + ", " + bug.name);
      const std::vector<Blame> blamed = trial.run({bug});
      if (blamed.empty()) continue;
      ++shown[bug.name];
      ASSERT_EQ(blamed.size(), 1u) << sentences(blamed);
      EXPECT_EQ(blamed[0].op, bug.op) << sentences(blamed);
      EXPECT_FALSE(blamed[0].cache) << sentences(blamed);
      EXPECT_GE(blamed[0].first.step, kStepUnderTest);
    }
  }
  EXPECT_GE(plan_planted().size(), 5u);
  for (const Planted& bug : plan_planted()) {
    EXPECT_GT(shown[bug.name], 0) << bug.name << " shows by no rule";
  }
}

TEST(PlanBugs, ASoundRunBlamesNobody) {
  for (const char* profile : kProfiles) {
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      SCOPED_TRACE(std::string(profile) + ", seed " + std::to_string(seed));
      Scenario scenario = tiny_scenario(seed, 272, profile);
      // Holes make lists longer than they were planned for: such a call has no plan.
      scenario.adversarial_lists = seed == 2;
      auto session = session_of(scenario);
      for (int i = 0; i < 3; ++i) {
        const auto ok = session->step();
        ASSERT_TRUE(ok) << ok.error().text();
        const auto blamed = blame(session->history().back().results);
        EXPECT_TRUE(blamed.empty()) << sentences(blamed);
      }
    }
  }
}

// Where sums are cut changes how they are rounded, and nothing else.
TEST(PlanBugs, APlanChangesRoundingAlone) {
  const auto last_lse = [](const char* profile) {
    auto session = session_of(tiny_scenario(3, 272, profile), References::kNone);
    std::vector<float> lse;
    while (lse.empty() || !session->finished()) {
      EXPECT_TRUE(session->op());
      const OpParams& params = session->last_params();
      if (session->cursor().step > 1) break;
      if (params.op() != AS_OP_SPARSE_ATTENTION) continue;
      const as_tensor& t = params.get<as_sparse_attention_params>().lse;
      const auto* values = static_cast<const float*>(t.data);
      lse.assign(values, values + as_tensor_numel(&t));
    }
    return lse;
  };
  const std::vector<float> none = last_lse("vllm");
  ASSERT_FALSE(none.empty());
  for (const char* profile : kProfiles) {
    const std::vector<float> planned = last_lse(profile);
    ASSERT_EQ(planned.size(), none.size());
    for (std::size_t i = 0; i < none.size(); ++i) {
      ASSERT_NEAR(planned[i], none[i], 0.02f) << profile << " " << i;
    }
  }
}

}  // namespace plan_bugs_test
}  // namespace attnscope
