// Minutes long: the real geometry past the length where the indexer drops entries.
#include "tests/golden/scenario_run.h"

namespace attnscope {
namespace flash_soak_test {

TEST(Soak, FlashAtLength2100HasNothingWrong) {
  const auto scenario = load_scenario("flash");
  ASSERT_TRUE(scenario) << scenario.error().text();
  ASSERT_EQ(scenario->requests[0].tokens.size(), 2100u);
  const RunResult run = run_and_check(*scenario);
  EXPECT_EQ(run.decode_steps, 3);
}

TEST(Soak, TenSeedsOfDefaultHaveNothingWrong) {
  auto scenario = load_scenario("default");
  ASSERT_TRUE(scenario) << scenario.error().text();
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    scenario->seed = seed;
    run_and_check(*scenario);
  }
}

}  // namespace flash_soak_test
}  // namespace attnscope
