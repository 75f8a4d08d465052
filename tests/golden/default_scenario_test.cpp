// The default scenario end to end, and the real geometry on short prompts.
#include "tests/golden/scenario_run.h"

namespace attnscope {
namespace default_scenario_test {

TEST(Scenarios, DefaultRunsTwentyDecodeStepsWithNothingWrong) {
  const auto scenario = load_scenario("default");
  ASSERT_TRUE(scenario) << scenario.error().text();
  ASSERT_GE(scenario->requests.size(), 3u);
  const RunResult run = run_and_check(*scenario);
  EXPECT_EQ(run.decode_steps, 20);
  // It exercises what it is for: windows recycle, the indexer selects, every layer's sink is
  // spread.
  for (const LayerDistributions& d : run.distributions.layers()) {
    const Quantiles mass = quantiles(d.sink_mass);
    EXPECT_LT(mass.p10, 0.1) << "layer " << d.layer;
    EXPECT_GT(mass.p90, 0.6) << "layer " << d.layer;
    if (d.tokens == 0) continue;
    EXPECT_GT(d.selective_tokens, 20);
    EXPECT_GT(quantiles(d.score_deviation).median, 0.1);
    EXPECT_GT(quantiles(d.score_distinct).min, 0.9);
  }
}

TEST(Scenarios, EarlyDecodeWithIdleIndexerHasNothingWrong) {
  const auto scenario = load_scenario("early");
  ASSERT_TRUE(scenario) << scenario.error().text();
  run_and_check(*scenario);
}

// One layer of each type, a prompt whose window has moved and that completes an entry of 128, and a
// step of one token. The soak test has the second C4A layer and the whole prompt.
TEST(Scenarios, FlashGeometryOnAShortPromptHasNothingWrong) {
  auto scenario = load_scenario("flash");
  ASSERT_TRUE(scenario) << scenario.error().text();
  ASSERT_EQ(scenario->model.layers, (std::vector<int>{0, 2, 3, 4}));
  scenario->model.layers = {0, 2, 3};
  scenario->requests[0].tokens.resize(130);
  scenario->decode_steps = 1;
  const RunResult run = run_and_check(*scenario);
  EXPECT_EQ(run.decode_steps, 1);
}

TEST(Scenarios, DeepSeekProfileHasNothingWrong) {
  auto scenario = load_scenario("early");
  ASSERT_TRUE(scenario) << scenario.error().text();
  scenario->model.switches = *profile_switches("deepseek");
  run_and_check(*scenario);
}

}  // namespace default_scenario_test
}  // namespace attnscope
