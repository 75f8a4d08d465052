// The worker thread: commands in order, snapshots that never change, cancelling, errors.
#include "engine/session/worker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "app/wiring/wiring.h"
#include "engine/session/place.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope {
namespace worker_test {

SessionWorker::Factory factory(References references = References::kNone) {
  return [=] {
    SessionOptions options;
    options.references = references;
    options.rewind_every = 3;
    return Session::create(small_scenario(), all_lanes(), options);
  };
}

Result<void> run_to_the_end(Session& session) {
  auto stopped = session.run_until([](const Session&) { return false; });
  return stopped ? Result<void>() : stopped.error();
}

Result<void> one_step(Session& session) { return session.step(); }

TEST(Worker, SaysWhoComputesAfterLanesChanged) {
  SessionWorker worker(factory(), {});
  worker.post("one step", one_step);
  worker.wait_idle();
  const auto info = worker.snapshot()->info;
  EXPECT_EQ(info->lanes, "cpu");
  worker.post("other lanes", [](Session& s) -> Result<void> {
    const std::vector<std::string> lanes{"swa_index=mutant:window_off_by_one"};
    if (auto ok = s.change_lanes(all_lanes(), lanes, 1); !ok) return ok;
    return s.step();
  });
  worker.wait_idle();
  const auto other = worker.snapshot()->info;
  EXPECT_EQ(other->lanes, "cpu, swa_index=mutant:window_off_by_one");
  EXPECT_EQ(other->lane_of[AS_OP_SWA_INDEX], "mutant:window_off_by_one");
  EXPECT_EQ(info->lanes, "cpu") << "a picture never changes";
  worker.post("one step", one_step);
  worker.wait_idle();
  EXPECT_EQ(worker.snapshot()->info, other) << "made anew only when something changed";
}

TEST(Worker, MakesTheSessionOnItsThreadAndPublishesASnapshotAfterEachCommand) {
  const auto caller = std::this_thread::get_id();
  std::atomic<bool> elsewhere{false};
  SessionWorker worker(
      [&] {
        elsewhere = std::this_thread::get_id() != caller;
        return factory()();
      },
      {});
  worker.wait_idle();
  EXPECT_TRUE(elsewhere);
  EXPECT_FALSE(worker.failed());
  const auto first = worker.snapshot();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->last.step, -1);
  EXPECT_EQ(first->next_op, AS_OP_SCHEDULE);
  EXPECT_EQ(first->info->request_names, (std::vector<std::string>{"long", "medium", "short"}));
  EXPECT_TRUE(first->traces.empty());
  worker.post("one step", one_step);
  worker.wait_idle();
  const auto second = worker.snapshot();
  EXPECT_GT(second->version, first->version);
  EXPECT_EQ(second->cursor, (Cursor{1, -1, 0, false}));
  EXPECT_EQ(second->last.step, 0);
  ASSERT_EQ(second->steps.size(), 1u);
  ASSERT_EQ(second->traces.size(), 1u);
  EXPECT_TRUE(second->traces[0]->complete);
  EXPECT_FALSE(second->requests[0].tables[0].empty());
  EXPECT_LT(second->free_blocks, first->free_blocks);
  EXPECT_EQ(first->last.step, -1);  // what was handed out does not change
  EXPECT_TRUE(first->steps.empty());
}

TEST(Worker, AStepInProgressShowsTheOpsThatRan) {
  SessionWorker worker(factory(), {});
  worker.post("to attention", [](Session& s) { return go_to(s, {0, 1, AS_OP_SPARSE_ATTENTION}); });
  worker.wait_idle();
  const auto now = worker.snapshot();
  EXPECT_EQ(now->last, (Place{0, 1, AS_OP_SPARSE_ATTENTION}));
  const StepTrace* trace = now->trace(0);
  ASSERT_NE(trace, nullptr);
  EXPECT_FALSE(trace->complete);
  EXPECT_FALSE(now->summary(0)->complete);
  EXPECT_EQ(trace->ops.back()->place, now->last);
  EXPECT_EQ(trace->find(1, AS_OP_INVERSE_ROPE), nullptr);
  EXPECT_EQ(now->trace(1), nullptr);
}

TEST(Worker, PicturesArePublishedWhileACommandRunsAndNotMoreOftenThanAsked) {
  struct Counted {
    std::atomic<int> pictures{0};
    std::shared_ptr<const Snapshot> last;
  };
  for (const double every : {0.0, 1e6}) {
    Counted counted;
    std::atomic<SessionWorker*> self{nullptr};
    WorkerOptions options;
    options.publish_every = every;
    options.on_change = [&] {
      SessionWorker* w = self;
      if (w == nullptr) return;
      auto now = w->snapshot();
      if (now && now != counted.last) ++counted.pictures;
      counted.last = now;
    };
    SessionWorker worker(factory(), options);
    worker.wait_idle();
    counted.last = worker.snapshot();
    self = &worker;
    worker.post("two steps", [](Session& s) { return s.seek({2, -1, 0, false}); });
    worker.wait_idle();
    // The change that goes with the last picture may still be under way.
    for (int i = 0; i < 1000 && counted.pictures < 1; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (every == 0) {
      EXPECT_GT(counted.pictures, 2 * 60);  // at least one an op
    } else {
      EXPECT_EQ(counted.pictures, 1);  // the one after the command
    }
    worker.post("wait", [](Session&) { return Result<void>(); });
    worker.wait_idle();
  }
}

TEST(Worker, RunningNamesTheCommandAndIsEmptyWhenIdle) {
  SessionWorker worker(factory(), {});
  std::atomic<bool> entered{false}, leave{false};
  worker.post("hold", [&](Session&) -> Result<void> {
    entered = true;
    while (!leave) std::this_thread::yield();
    return {};
  });
  while (!entered) std::this_thread::yield();
  EXPECT_EQ(worker.running(), "hold");
  EXPECT_GE(worker.running_seconds(), 0);
  EXPECT_FALSE(worker.idle());
  leave = true;
  worker.wait_idle();
  EXPECT_TRUE(worker.idle());
  EXPECT_EQ(worker.running(), "");
  EXPECT_EQ(worker.running_seconds(), 0);
}

TEST(Worker, CancelEndsALongCommandBetweenTwoOpsAndDropsTheQueue) {
  SessionWorker worker(factory(References::kSim), {});
  std::atomic<bool> dropped_ran{false};
  std::atomic<int> steps{0};
  worker.post("all", [&](Session& s) -> Result<void> {
    // Composed of many calls: cancelling one of them must not let the others go on.
    while (!s.finished() && !s.cancelled()) {
      if (auto ok = s.step(); !ok) return ok;
      ++steps;
    }
    return {};
  });
  worker.post("never", [&](Session&) -> Result<void> {
    dropped_ran = true;
    return {};
  });
  worker.post_setting("switching the invariants", [](Session& s) -> Result<void> {
    s.set_invariants(Invariants::kCall);
    return {};
  });
  while (steps < 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  worker.cancel();
  worker.wait_idle();
  EXPECT_EQ(worker.snapshot()->invariants, Invariants::kCall) << "a setting is no work";
  EXPECT_FALSE(worker.snapshot()->finished);
  EXPECT_FALSE(dropped_ran);
  EXPECT_FALSE(worker.take_error());
  const std::int64_t step = worker.snapshot()->cursor.step;
  worker.post("one step", one_step);  // and goes on from there
  worker.wait_idle();
  EXPECT_EQ(worker.snapshot()->cursor.step, step + 1);
}

TEST(Worker, CancelEndsASeekToo) {
  SessionWorker worker(factory(References::kSim), {});
  std::atomic<bool> started{false};
  worker.post("far", [&](Session& s) {
    started = true;
    return s.seek({9, -1, 0, false});
  });
  while (!started) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  worker.cancel();
  worker.wait_idle();
  EXPECT_LT(worker.snapshot()->cursor.step, 9);
  EXPECT_FALSE(worker.take_error());
}

TEST(Worker, AFailedCommandIsReportedOnceAndLeavesTheSessionUsable) {
  SessionWorker worker(factory(), {});
  worker.post("nowhere", [](Session& s) { return s.seek({0, 99, 0, false}); });
  worker.wait_idle();
  const auto error = worker.take_error();
  ASSERT_TRUE(error);
  EXPECT_NE(error->message.find("no op at step 0"), std::string::npos);
  EXPECT_FALSE(worker.take_error());
  const auto& events = worker.snapshot()->steps.front()->events;
  EXPECT_TRUE(std::ranges::any_of(events, [&](const Event& e) {
    return e.kind == EventKind::kError && e.text == error->text();
  }));
  worker.post("two", [](Session& s) { return s.seek({2, -1, 0, false}); });
  worker.wait_idle();
  EXPECT_FALSE(worker.take_error());
  EXPECT_EQ(worker.snapshot()->cursor.step, 2);
}

TEST(Worker, WhatACommandThrowsBecomesItsError) {
  SessionWorker worker(factory(), {});
  worker.post("throw", [](Session&) -> Result<void> { throw std::runtime_error("thrown"); });
  worker.wait_idle();
  auto error = worker.take_error();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->message, "thrown");
  worker.post("throw", [](Session&) -> Result<void> { throw 3; });
  worker.wait_idle();
  EXPECT_TRUE(worker.take_error());
  worker.post("memory", [](Session&) -> Result<void> { throw std::bad_alloc(); });
  worker.wait_idle();
  error = worker.take_error();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, AS_NO_ENVIRONMENT);
  worker.post("one step", one_step);
  worker.wait_idle();
  EXPECT_EQ(worker.snapshot()->cursor.step, 1);
}

TEST(Worker, AFactoryThatFailsLeavesItsErrorAndDropsCommands) {
  std::vector<SessionWorker::Factory> bad = {
      []() -> Result<std::unique_ptr<Session>> { return bad_input("no such scenario"); },
      []() -> Result<std::unique_ptr<Session>> { throw std::runtime_error("no such scenario"); }};
  for (const auto& make : bad) {
    std::atomic<bool> ran{false};
    const auto command = [&](Session&) -> Result<void> {
      ran = true;
      return {};
    };
    SessionWorker worker(make, {});
    worker.post("before or after", command);
    worker.wait_idle();
    worker.post("after", command);
    worker.wait_idle();
    worker.cancel();
    EXPECT_TRUE(worker.failed());
    EXPECT_TRUE(worker.idle());
    EXPECT_EQ(worker.snapshot(), nullptr);
    const auto error = worker.take_error();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->message, "no such scenario");
    EXPECT_FALSE(ran);
  }
}

TEST(Worker, EndsWhileACommandRunsAndWhileTheSessionIsMade) {
  auto worker = std::make_unique<SessionWorker>(factory(), WorkerOptions{});
  worker->wait_idle();
  std::atomic<bool> started{false};
  worker->post("all", [&](Session& s) {
    started = true;
    return run_to_the_end(s);
  });
  while (!started) std::this_thread::yield();
  worker.reset();  // must not hang or crash
  worker = std::make_unique<SessionWorker>(factory(), WorkerOptions{});
  worker->post("all", run_to_the_end);
  worker.reset();
  SUCCEED();
}

TEST(Worker, ReadersOnOtherThreadsSeeWholePictures) {
  WorkerOptions options;
  options.publish_every = 0;
  options.trace.budget_bytes = 1 << 20;  // so that traces are evicted while they are read
  SessionWorker worker(factory(), options);
  worker.wait_idle();
  worker.post("all", run_to_the_end);
  std::int64_t checked = 0;
  std::uint64_t version = 0;
  do {
    const auto now = worker.snapshot();
    EXPECT_GE(now->version, version);
    version = now->version;
    for (const auto& trace : now->traces) {
      for (const auto& op : trace->ops) {
        for (const TapCopy& tap : op->taps) {
          const as_tensor& v = tap.value;
          ASSERT_NE(v.data, nullptr);
          const auto bytes = as_tensor_numel(&v) * as_dtype_size(v.dtype);
          checked += static_cast<const std::uint8_t*>(v.data)[bytes - 1] < 128 ? 1 : 0;
        }
      }
    }
  } while (!worker.idle());
  EXPECT_TRUE(worker.snapshot()->finished);
  EXPECT_GT(checked, 0);
}

}  // namespace worker_test
}  // namespace attnscope
