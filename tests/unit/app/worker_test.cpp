// The worker thread: commands in order, snapshots that never change, cancelling, errors.
#include "engine/session/worker.h"

#include <gtest/gtest.h>

#include "app/common/wiring.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope {
namespace {

std::unique_ptr<Session> make(References references = References::kSim) {
  SessionOptions options;
  options.references = references;
  auto session = Session::create(small_scenario(), all_lanes(), options);
  EXPECT_TRUE(session) << session.error().text();
  return std::move(*session);
}

TEST(Worker, PublishesASnapshotAfterEachCommand) {
  SessionWorker worker(make());
  const auto first = worker.snapshot();
  EXPECT_EQ(first->cursor.step, 0);
  EXPECT_EQ(first->last_op, AS_OP_COUNT);
  worker.post([](Session& s) { return s.step(); });
  worker.wait_idle();
  const auto second = worker.snapshot();
  EXPECT_EQ(second->cursor.step, 1);
  EXPECT_EQ(second->history->size(), 1u);
  EXPECT_FALSE(second->requests[0].tables[0].empty());
  EXPECT_LT(second->free_blocks, first->free_blocks);
  EXPECT_EQ(first->cursor.step, 0);  // what was handed out does not change
  EXPECT_TRUE(first->history->empty());
}

TEST(Worker, SnapshotsCarryTheLastOpsTapsWithTheReference) {
  SessionWorker worker(make());
  worker.post([](Session& s) -> Result<void> {
    auto stopped = s.run_until(
        [](const Session& at) { return at.last_params().op() == AS_OP_SPARSE_ATTENTION; });
    return stopped ? Result<void>() : stopped.error();
  });
  worker.wait_idle();
  const auto snapshot = worker.snapshot();
  ASSERT_EQ(snapshot->last_op, AS_OP_SPARSE_ATTENTION);
  const auto lse = std::find_if(snapshot->taps.begin(), snapshot->taps.end(),
                                [](const TapCopy& t) { return t.name == "lse"; });
  ASSERT_NE(lse, snapshot->taps.end());
  ASSERT_EQ(lse->value.shape[0], snapshot->metadata.num_tokens_in_step());
  const std::vector<float> before(static_cast<float*>(lse->value.data),
                                  static_cast<float*>(lse->value.data) + 8);
  worker.post([](Session& s) { return s.step(); });
  worker.wait_idle();
  for (int h = 0; h < 8; ++h) {
    const float value = static_cast<float*>(lse->value.data)[h];
    EXPECT_EQ(value, before[static_cast<std::size_t>(h)]);
    EXPECT_NEAR(value, static_cast<double*>(lse->reference.data)[h], 1e-4);
  }
}

TEST(Worker, CancelEndsALongCommandBetweenTwoOps) {
  SessionWorker worker(make());
  worker.post([](Session& s) -> Result<void> {
    auto stopped = s.run_until([](const Session&) { return false; });
    return stopped ? Result<void>() : stopped.error();
  });
  worker.post([](Session& s) { return s.step(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  worker.cancel();
  worker.wait_idle();
  EXPECT_FALSE(worker.snapshot()->finished);
  const std::int64_t step = worker.snapshot()->cursor.step;
  worker.post([](Session& s) { return s.step(); });  // and goes on from there
  worker.wait_idle();
  EXPECT_EQ(worker.snapshot()->cursor.step, step + 1);
}

TEST(Worker, AFailedCommandIsReportedOnceAndLeavesTheSessionUsable) {
  SessionWorker worker(make(References::kNone));
  worker.post([](Session& s) { return s.seek({0, 99, 0, false}); });
  worker.wait_idle();
  const auto error = worker.take_error();
  ASSERT_TRUE(error);
  EXPECT_NE(error->message.find("no op at step 0"), std::string::npos);
  EXPECT_FALSE(worker.take_error());
  worker.post([](Session& s) { return s.seek({2, -1, 0, false}); });
  worker.wait_idle();
  EXPECT_FALSE(worker.take_error());
  EXPECT_EQ(worker.snapshot()->cursor.step, 2);
}

TEST(Worker, EndsWhileACommandRuns) {
  auto worker = std::make_unique<SessionWorker>(make());
  worker->post([](Session& s) -> Result<void> {
    auto stopped = s.run_until([](const Session&) { return false; });
    return stopped ? Result<void>() : stopped.error();
  });
  worker.reset();  // must not hang or crash
  SUCCEED();
}

}  // namespace
}  // namespace attnscope
