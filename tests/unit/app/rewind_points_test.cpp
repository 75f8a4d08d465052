// Going back over a thousand steps: rewind points within their budget, a bounded replay, the same
// tensors bit for bit.
#include "engine/session/rewind_points.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <map>

#include "app/wiring/wiring.h"
#include "engine/session/place.h"
#include "engine/session/trace_recorder.h"
#include "kernels/params/tensor_view.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope {
namespace rewind_points_test {

// Checksums of what every op of a step wrote, and how many steps ran.
class Outputs : public SessionObserver {
 public:
  void op_done(const Session& s) override {
    const OpParams& params = s.last_params();
    std::uint64_t& sum = sums_[s.cursor().step];
    for (std::size_t i = 0; i < params.info().num_taps; ++i) {
      const as_tap_info& tap = params.info().taps[i];
      // Of masked ones only a part is written.
      if (tap.direction != AS_TAP_OUT || tap.kind != AS_TAP_TENSOR || tap.mask != AS_MASK_ALL) {
        continue;
      }
      const as_tensor& t = params.tensor(tap.offset);
      if (t.data == nullptr) continue;
      std::int64_t bytes = as_dtype_size(t.dtype);
      for (int d = 0; d < t.rank; ++d) bytes *= t.shape[d];
      const auto* p = static_cast<const std::uint8_t*>(t.data);
      for (std::int64_t b = 0; b < bytes; ++b) sum = (sum ^ p[b]) * 0x100000001b3u;
    }
  }
  void step_done(const Session&) override { ++steps; }
  void went_back(const Session& s) override {
    ++moves;
    sums_.erase(sums_.lower_bound(s.cursor().step), sums_.end());
  }
  std::uint64_t of(std::int64_t step) const {
    const auto it = sums_.find(step);
    return it == sums_.end() ? 0 : it->second;
  }
  std::int64_t steps = 0, moves = 0;

 private:
  std::map<std::int64_t, std::uint64_t> sums_;
};

std::unique_ptr<Session> make(const Scenario& scenario, std::int64_t bytes) {
  SessionOptions options;
  options.references = References::kNone;
  options.threads = 2;
  options.rewind_bytes = bytes;
  auto session = Session::create(scenario, all_lanes(), options);
  EXPECT_TRUE(session) << session.error().text();
  return std::move(*session);
}

// One short request that decodes for 1,100 steps.
Scenario long_scenario() {
  Scenario s = small_scenario(40, 1100);
  s.requests.resize(1);
  s.pool_blocks = 600;
  return s;
}

TEST(RewindPoints, GoingBackOverAThousandStepsStaysWithinBudgetAndReplaysFew) {
  constexpr std::int64_t kSteps = 1050, kBudget = std::int64_t{24} << 20;
  auto session = make(long_scenario(), kBudget);
  Outputs outputs;
  session->set_observer(&outputs);
  std::vector<std::uint64_t> digests;
  for (std::int64_t i = 0; i < kSteps; ++i) {
    if (i % 50 == 7) digests.push_back(session->digest());
    ASSERT_TRUE(session->step());
    ASSERT_LE(session->rewind_use().bytes, kBudget) << i;
  }
  std::vector<std::uint64_t> sums;
  for (std::int64_t i = 0; i < kSteps; ++i) sums.push_back(outputs.of(i));
  const RewindUse use = session->rewind_use();
  EXPECT_GT(use.count, 10);
  EXPECT_LE(use.longest_replay, 4 * kSteps / use.count);
  EXPECT_LT(use.longest_replay, 200);

  std::uint32_t random = 1;
  for (int trial = 0; trial < 40; ++trial) {
    random = random * 1664525u + 1013904223u;
    const std::int64_t target = 7 + 50 * static_cast<std::int64_t>((random >> 8) % digests.size());
    const RewindUse now = session->rewind_use();
    outputs.steps = 0;
    ASSERT_TRUE(session->seek({target, -1, 0, false}));
    ASSERT_EQ(session->cursor().step, target);
    EXPECT_LE(outputs.steps, now.longest_replay) << "to " << target;
    EXPECT_EQ(session->digest(), digests[static_cast<std::size_t>((target - 7) / 50)]) << target;
    ASSERT_EQ(session->history().size(), static_cast<std::size_t>(target));
    EXPECT_EQ(session->history().back().step, target - 1);
    ASSERT_TRUE(session->step());
    EXPECT_EQ(outputs.of(target), sums[static_cast<std::size_t>(target)]) << target;
    EXPECT_LE(session->rewind_use().bytes, kBudget);
  }
  // Back to where it was, and on: the records are whole.
  ASSERT_TRUE(session->seek({kSteps, -1, 0, false}));
  ASSERT_EQ(session->history().size(), static_cast<std::size_t>(kSteps));
  for (std::int64_t i = 0; i < kSteps; ++i) {
    ASSERT_EQ(session->history()[static_cast<std::size_t>(i)].step, i);
  }
  ASSERT_TRUE(session->step());
}

TEST(RewindPoints, ForwardAgainTakesACheckpointOnTheWay) {
  auto session = make(long_scenario(), std::int64_t{256} << 20);
  Outputs outputs;
  session->set_observer(&outputs);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(session->step());
  ASSERT_TRUE(session->seek({3, -1, 0, false}));
  outputs.steps = outputs.moves = 0;
  ASSERT_TRUE(session->seek({98, -1, 0, false}));
  EXPECT_EQ(outputs.steps, 2);  // from the rewind point of step 96
  EXPECT_EQ(outputs.moves, 1);
}

TEST(RewindPoints, OtherLanesForgetWhatLiesAhead) {
  auto session = make(long_scenario(), std::int64_t{256} << 20);
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(session->step());
  ASSERT_TRUE(session->change_lanes(all_lanes(), {"cpu"}, 12));
  Outputs outputs;
  session->set_observer(&outputs);
  ASSERT_TRUE(session->seek({40, -1, 0, false}));
  EXPECT_EQ(outputs.steps, 28);
  EXPECT_EQ(session->history().size(), 40u);
}

TEST(RewindPoints, ABudgetThatHoldsNoneLeavesTheFirstStep) {
  auto session = make(long_scenario(), 0);
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(session->step());
  EXPECT_EQ(session->rewind_use().count, 1);
  EXPECT_EQ(session->rewind_use().longest_replay, 30);
  const std::uint64_t digest = session->digest();
  ASSERT_TRUE(session->step_back());
  ASSERT_TRUE(session->step());
  EXPECT_EQ(session->digest(), digest);
}

TEST(RewindPoints, ASmallerBudgetThinsOutAtOnce) {
  auto session = make(long_scenario(), std::int64_t{256} << 20);
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(session->step());
  const RewindUse before = session->rewind_use();
  EXPECT_EQ(before.count, 26);  // at 0, 8, .. 200
  EXPECT_EQ(before.longest_replay, 7);
  session->set_rewind_budget(before.bytes / 2);
  const RewindUse after = session->rewind_use();
  EXPECT_LT(after.count, before.count);
  EXPECT_LE(after.bytes, before.bytes / 2);
  EXPECT_GE(after.longest_replay, 15);
  EXPECT_LE(after.longest_replay, 63);
}

TEST(RewindPoints, PreemptedAndSharedRequestsComeBackTheSame) {
  Scenario scenario = small_scenario(300, 60);
  scenario.pool_blocks = 90;
  auto session = make(scenario, std::int64_t{8} << 20);
  Outputs outputs;
  session->set_observer(&outputs);
  std::vector<std::uint64_t> digests, sums;
  while (!session->finished()) {
    digests.push_back(session->digest());
    ASSERT_TRUE(session->step());
    sums.push_back(outputs.of(static_cast<std::int64_t>(sums.size())));
  }
  ASSERT_GT(digests.size(), 40u);
  for (const std::size_t target : {30u, 5u, 39u, 12u, 38u, 0u, 33u}) {
    ASSERT_TRUE(session->seek({static_cast<std::int64_t>(target), -1, 0, false}));
    EXPECT_EQ(session->digest(), digests[target]) << target;
    ASSERT_TRUE(session->step());
    EXPECT_EQ(outputs.of(static_cast<std::int64_t>(target)), sums[target]) << target;
  }
}

// What is counted is what the allocator gave, within a half.
TEST(RewindPoints, CountsTheStateOfRequestsAboutRight) {
  auto session = make(long_scenario(), 0);
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(session->step());
  std::vector<std::pair<Serving, ServingJudge>> copies;
  copies.reserve(64);
  const std::size_t before = mallinfo2().uordblks;
  for (int i = 0; i < 64; ++i) copies.emplace_back(session->serving(), session->judge());
  const auto each = static_cast<double>(mallinfo2().uordblks - before) / 64 + sizeof(Serving);
  const auto counted = static_cast<double>(serving_bytes(session->serving()));
  EXPECT_GT(counted, each / 1.5);
  EXPECT_LT(counted, each * 1.5);
}

}  // namespace rewind_points_test
}  // namespace attnscope
