// Sessions whose rows lie in host memory, on the GPU: beside ref.sim however their layers hide the
// rows that come, as many hits and misses as on the CPU lane, and where a layer takes its batch in
// halves or waits for all rows, what attention gives without pools.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "engine/family/models.h"
#include "engine/session/session.h"
#include "kernels/cuda/cuda_lane.h"
#include "tests/gpu/support.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope::gpu_tests {
namespace ess_gpu_test {

Scenario pools(bool v4, const char* attend) {
  Scenario s = small_scenario(v4 ? 230 : 150, 12);
  if (!v4) s.model = *preset("tiny-v3.2", {});
  s.model.index_topk = 16;
  if (attend == nullptr) return s;
  s.model.host_rows = true;
  s.ess.ratio = v4 ? 0.7 : 0.3;
  s.ess.attend = *overlap_choice(attend, s.model.layers);
  return s;
}

struct Ran {
  std::vector<std::vector<std::int32_t>> sampled;  // by step
  std::vector<std::vector<PoolCounts>> pools;
  std::int64_t wrong = 0, travels = 0;
};

Ran run_all(const Scenario& scenario, const std::string& lane, References references) {
  LaneRegistry registry;
  registry.add(*cpu::lane());
  registry.add(*cuda::lane());
  registry.add(*reference::sim_lane());
  registry.add(*reference::exact_lane());
  SessionOptions options;
  options.lanes = {lane};
  options.references = references;
  options.tolerance_file = ATTNSCOPE_SOURCE_DIR "/assets/tolerances.json";
  Ran ran;
  auto session = Session::create(scenario, registry, options);
  EXPECT_TRUE(session) << session.error().text();
  while (session && !(*session)->finished()) {
    const auto ok = (*session)->step();
    EXPECT_TRUE(ok) << ok.error().text();
    if (!ok) break;
    const StepRecord& record = (*session)->history().back();
    ran.sampled.push_back(record.sampled);
    ran.pools.push_back(record.pools);
    for (const OpTiming& t : record.timings) ran.travels += t.stream == OpTiming::kExchange;
    for (const TapResult& r : record.results) {
      if (r.verdict != Verdict::kWrong) continue;
      if (ran.wrong++ < 3) ADD_FAILURE() << as_op_find(r.op)->name << " " << r.tap << " " << r.note;
    }
  }
  EXPECT_FALSE(session && (*session)->device_error());
  return ran;
}

TEST(GpuEss, EveryTapIsRightHoweverRowsCome) {
  for (const bool v4 : {true, false}) {
    for (const char* attend : {"none", "da", "dba"}) {
      SCOPED_TRACE(attend);
      const Ran ran = run_all(pools(v4, attend), "cuda", References::kSim);
      EXPECT_EQ(ran.wrong, 0);
      EXPECT_EQ(ran.travels > 0, std::string_view(attend) != "none");
    }
  }
}

// Where tokens are those of the CPU lane they select the same rows, but for near-ties.
TEST(GpuEss, HitsAndMissesAreThoseOfTheCpuLane) {
  for (const bool v4 : {true, false}) {
    for (const char* attend : {"none", "da", "dba"}) {
      SCOPED_TRACE(attend);
      const Ran cpu = run_all(pools(v4, attend), "cpu", References::kNone);
      const Ran gpu = run_all(pools(v4, attend), "cuda", References::kNone);
      ASSERT_EQ(gpu.sampled.size(), cpu.sampled.size());
      // A step selects for the tokens of those before it.
      std::size_t steps = 0;
      while (steps < cpu.sampled.size() && gpu.sampled[steps] == cpu.sampled[steps]) ++steps;
      steps = std::min(steps + 1, cpu.sampled.size());
      std::int64_t misses[2] = {0, 0}, all[2] = {0, 0};
      for (std::size_t s = 0; s < steps; ++s) {
        const std::pair<int, const std::vector<PoolCounts>*> sides[] = {{0, &cpu.pools[s]},
                                                                        {1, &gpu.pools[s]}};
        for (const auto& [side, counts] : sides) {
          for (const PoolCounts& c : *counts) {
            misses[side] += c.misses;
            all[side] += c.hits + c.misses;
          }
        }
      }
      EXPECT_GT(all[0], 0) << "of " << steps << " steps";
      // Requests with the same row in a selection count it once: a near-tie may count one more.
      EXPECT_LE(std::abs(all[1] - all[0]), 2 + all[0] / 200) << "rows that were selected";
      EXPECT_LE(std::abs(misses[1] - misses[0]), 2 + all[0] / 50) << misses[0] << " of " << all[0];
    }
  }
}

// Halves of a batch are cut into other parts than all of it, so that roundings are others: at some
// near-tie tokens may part, but not soon.
TEST(GpuEss, TokensAreThoseWithoutPools) {
  for (const bool v4 : {true, false}) {
    const Ran without = run_all(pools(v4, nullptr), "cuda", References::kNone);
    EXPECT_EQ(run_all(pools(v4, "none"), "cuda", References::kNone).sampled, without.sampled);
    const Ran halves = run_all(pools(v4, "dba"), "cuda", References::kNone);
    ASSERT_EQ(halves.sampled.size(), without.sampled.size());
    const auto [parted, other] =
        std::mismatch(without.sampled.begin(), without.sampled.end(), halves.sampled.begin());
    EXPECT_GE(parted - without.sampled.begin(), 8) << "steps of the same tokens";
  }
}

}  // namespace ess_gpu_test
}  // namespace attnscope::gpu_tests
