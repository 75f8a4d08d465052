// The app without its looks: cursor and selection over a session that runs on its own thread.
#include "app/workbench/workbench.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <set>
#include <thread>

#include "app/views/op_order.h"
#include "app/views/timeline_view.h"
#include "app/workbench/pooled_tokens.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope {
namespace workbench_test {

namespace fs = std::filesystem;

RunSetup small_setup(References references = References::kNone) {
  RunSetup setup;
  setup.scenario = small_scenario(150, 16);
  setup.references = references;
  return setup;
}

// As a window does: looks again and again while the session runs.
void watch(Workbench& bench) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  do {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    bench.poll();
  } while (bench.busy() && std::chrono::steady_clock::now() < until);
  bench.poll();
}

TEST(Workbench, ANewcomerSeesAttentionAlsoWhenTheWarmUpWasWatched) {
  Workbench bench({});
  bench.open(small_setup(References::kSim), true);
  watch(bench);
  ASSERT_NE(bench.snapshot(), nullptr);
  EXPECT_EQ(bench.cursor(), first_view(*bench.snapshot()->info, bench.cursor().step));
  EXPECT_EQ(bench.cursor().op, AS_OP_SPARSE_ATTENTION);
  EXPECT_TRUE(bench.snapshot()->decoding);
}

TEST(Workbench, TheSessionIsAskedForTheTokensOfAnEntry) {
  Workbench bench({});
  bench.open(small_setup(), true);
  bench.wait_idle();
  EXPECT_EQ(bench.pooled(), nullptr);
  const PooledOf first{.layer = 1, .request = 0, .entry = 0, .channel = 5};
  bench.request_pooled(first);
  bench.wait_idle();
  const auto pooled = bench.pooled();
  ASSERT_NE(pooled, nullptr);
  EXPECT_EQ(pooled->of, first);
  EXPECT_EQ(pooled->why_empty, "");
  ASSERT_EQ(pooled->tokens.size(), 4u) << "the first C4A entry has no window before it";
  double weights = 0;
  for (const PooledToken& token : pooled->tokens) weights += token.weight;
  EXPECT_NEAR(weights, 1, 1e-9);
  bench.request_pooled({.layer = 1, .request = 0, .entry = 5000});
  EXPECT_EQ(bench.pooled(), nullptr) << "that was another entry";
  bench.wait_idle();
  ASSERT_NE(bench.pooled(), nullptr);
  EXPECT_NE(bench.pooled()->why_empty.find("no entry 5000"), std::string::npos);
}

TEST(Workbench, TheCursorMovesAtOnceAmongKeptStepsAndComesBackToTheNewest) {
  Workbench bench({});
  bench.open(small_setup(), true);
  bench.wait_idle();
  const Place newest = bench.cursor();
  ASSERT_GT(newest.step, 1);
  bench.previous_step();
  EXPECT_FALSE(bench.moving()) << "its trace is kept: nothing has to run";
  EXPECT_EQ(bench.cursor().step, newest.step - 1);
  EXPECT_EQ(bench.cursor().op, newest.op);
  bench.previous_layer();
  bench.last_step();
  bench.wait_idle();
  EXPECT_EQ(bench.cursor().step, newest.step);
  bench.next_step();
  bench.wait_idle();
  EXPECT_EQ(bench.cursor().step, newest.step + 1) << "a step that has not run is run";
}

// Steps of prompts alone sample nothing, and few steps move blocks.
TEST(Workbench, TheCursorGoesPastOpsThatAStepHasNot) {
  Workbench bench({});
  bench.open(small_setup(), true);
  bench.wait_idle();
  const int last = bench.snapshot()->info->config.layers.back();
  const Place residual{0, last, AS_OP_RESIDUAL}, next{1, -1, AS_OP_SCHEDULE};
  const auto from = [&](const Place& place, void (Workbench::*move)()) {
    bench.go_to(place);
    bench.wait_idle();
    EXPECT_EQ(bench.cursor(), place);
    (bench.*move)();
    bench.wait_idle();
    return bench.cursor();
  };
  ASSERT_FALSE(bench.snapshot()->summary(0)->timings.back().op == AS_OP_SAMPLE);
  EXPECT_EQ(from(residual, &Workbench::next_op), next);
  EXPECT_EQ(from(residual, &Workbench::next_layer), next);
  EXPECT_EQ(from(next, &Workbench::previous_op), residual);
  const Place sample{bench.snapshot()->last.step, -1, AS_OP_SAMPLE};
  EXPECT_EQ(from(sample, &Workbench::first_step), (Place{0, -1, AS_OP_SCHEDULE}));
  const std::size_t said = bench.messages().size();
  bench.go_to({0, -1, AS_OP_SAMPLE});
  bench.wait_idle();
  EXPECT_EQ(bench.cursor(), (Place{0, -1, AS_OP_SCHEDULE}));
  ASSERT_EQ(bench.messages().size(), said + 1) << "a jump to one says why it cannot be";
  EXPECT_NE(bench.messages().back().text.find("there is no sample of step 0"), std::string::npos);
}

TEST(Workbench, TheCursorGoesPastMovesOfBlocksInAStepThatIsBegun) {
  RunSetup setup;
  auto swap = load_scenario("swap");
  ASSERT_TRUE(swap) << swap.error().text();
  setup.scenario = std::move(*swap);
  Workbench bench({});
  bench.open(std::move(setup), false);
  bench.wait_idle();
  for (const as_op_id op : {AS_OP_SCHEDULE, AS_OP_BLOCK_TABLES, AS_OP_SLOT_MAPPING}) {
    bench.next_op();
    bench.wait_idle();
    EXPECT_EQ(bench.cursor(), (Place{0, -1, op}));
  }
  bench.previous_op();
  bench.previous_op();
  EXPECT_EQ(bench.cursor(), (Place{0, -1, AS_OP_SCHEDULE}));
  EXPECT_TRUE(bench.messages().empty());
}

TEST(Workbench, AForgottenStepIsComputedAgain) {
  Workbench::Options options;
  options.trace_budget_mb = 1;
  Workbench bench(options);
  bench.open(small_setup(), true);
  bench.wait_idle();
  ASSERT_EQ(bench.snapshot()->trace(0), nullptr) << "1 MiB does not hold all steps";
  bench.go_to({0, 1, AS_OP_WO_A});
  bench.wait_idle();
  EXPECT_EQ(bench.cursor(), (Place{0, 1, AS_OP_WO_A}));
  EXPECT_NE(bench.op(), nullptr);
}

TEST(Workbench, WhatDoesNotExistIsSaidAndChangesNothing) {
  Workbench bench({});
  bench.open(small_setup(), true);
  bench.wait_idle();
  const Place before = bench.cursor();
  bench.go_to({before.step, 0, AS_OP_INDEXER_TOPK});
  bench.go_to({before.step, 99, AS_OP_WO_A});
  EXPECT_EQ(bench.cursor(), before);
  ASSERT_GE(bench.messages().size(), 2u);
  EXPECT_EQ(bench.messages().back().kind, Message::Kind::kError);
  EXPECT_FALSE(bench.open_scenario("no such scenario"));
  EXPECT_FALSE(bench.check_lanes({"gpu"}));
  EXPECT_EQ(bench.setup().scenario.name, "small");
  EXPECT_NE(bench.snapshot(), nullptr);
}

TEST(Workbench, TheSelectionFallsBackToTheNewestTokenOfItsRequest) {
  Workbench bench({});
  bench.open(small_setup(), true);
  bench.wait_idle();
  bench.select_token(1, -1);
  EXPECT_EQ(bench.selected_request(), 1);
  const std::int64_t newest = bench.selected_position();
  EXPECT_GT(newest, 0);
  bench.select_token(1, 0);
  EXPECT_EQ(bench.selected_position(), newest) << "token 0 is not computed in this step";
  Selection far = bench.selection();
  far.request = 1000;
  far.position = 1 << 20;
  bench.select(far);
  EXPECT_NE(bench.selected_request(), 1000);
}

TEST(Workbench, TheFirstFailureSelectsItsToken) {
  Workbench bench({});
  bench.open(small_setup(References::kSim), true);
  bench.wait_idle();
  EXPECT_FALSE(bench.go_to_first_failure());
  bench.plant("topk_one_short");
  bench.wait_idle();
  ASSERT_EQ(bench.cursor().op, AS_OP_INDEXER_TOPK);
  EXPECT_EQ(bench.selection().tap, "indices");
  ASSERT_EQ(bench.selection().element.size(), 2u);
  EXPECT_EQ(bench.selected_row(), bench.selection().element[0]);
  bench.remove_planted();
  bench.wait_idle();
  EXPECT_FALSE(bench.go_to_first_failure());
}

TEST(Workbench, APlantedBugLeavesTheLanesOfOtherOps) {
  Workbench bench({});
  RunSetup setup = small_setup(References::kSim);
  setup.lanes = {"cpu", "sparse_attention=mutant:sink_scaled"};
  bench.open(std::move(setup), true);
  bench.wait_idle();
  const auto wrong_ops = [&] {
    std::set<as_op_id> ops;
    for (const auto& step : bench.snapshot()->steps) {
      if (!step->complete) continue;
      ops.clear();  // of the newest
      for (const TapResult& result : step->results) {
        if (result.verdict == Verdict::kWrong) ops.insert(result.op);
      }
    }
    return ops;
  };
  ASSERT_EQ(wrong_ops(), std::set<as_op_id>{AS_OP_SPARSE_ATTENTION});
  bench.plant("topk_one_short");
  bench.wait_idle();
  EXPECT_EQ(wrong_ops(), (std::set<as_op_id>{AS_OP_INDEXER_TOPK, AS_OP_SPARSE_ATTENTION}));
  bench.remove_planted();
  bench.wait_idle();
  EXPECT_EQ(wrong_ops(), std::set<as_op_id>{AS_OP_SPARSE_ATTENTION});
}

TEST(Workbench, AKeptSessionIsResumedWithTheSameBytes) {
  const fs::path folder = fs::temp_directory_path() / "attnscope_workbench_test";
  fs::remove_all(folder);
  Workbench::Options options;
  options.cache_folder = folder.string();
  Place at[2];
  std::vector<std::int32_t> sampled[2];
  for (int i = 0; i < 2; ++i) {
    Workbench bench(options);
    bench.open(small_setup(References::kSim), true);
    bench.wait_idle();
    ASSERT_NE(bench.step(), nullptr);
    at[i] = bench.cursor();
    sampled[i] = bench.step()->sampled;
    EXPECT_FALSE(fs::is_empty(folder));
    // What an earlier start computed is told apart.
    const Snapshot& now = *bench.snapshot();
    EXPECT_EQ(now.steps.front()->resumed, i == 1);
    EXPECT_FALSE(now.steps.back()->resumed);
    EXPECT_EQ(resumed_steps(now).starts_with("steps 0-"), i == 1) << resumed_steps(now);
    bench.next_step();
    bench.wait_idle();
    EXPECT_EQ(bench.cursor().step, at[i].step + 1);
  }
  EXPECT_EQ(at[0], at[1]);
  EXPECT_EQ(sampled[0], sampled[1]);
  fs::remove_all(folder);
}

// With its requests over there is no step left to run live: the last one is shown.
TEST(Workbench, AKeptSessionThatIsOverShowsItsLastStep) {
  const fs::path folder = fs::temp_directory_path() / "attnscope_workbench_over_test";
  fs::remove_all(folder);
  Workbench::Options options;
  options.cache_folder = folder.string();
  RunSetup setup = small_setup();
  setup.scenario = small_scenario(60, 7);  // over with the step behind which it is kept
  Place at[2];
  for (Place& place : at) {
    Workbench bench(options);
    bench.open(setup, true);
    bench.wait_idle();
    EXPECT_TRUE(bench.snapshot()->finished);
    EXPECT_FALSE(fs::is_empty(folder)) << "it was kept";
    ASSERT_NE(bench.step(), nullptr);
    EXPECT_EQ(bench.cursor().step, bench.snapshot()->steps.back()->step);
    place = bench.cursor();
  }
  EXPECT_EQ(at[0], at[1]);
  fs::remove_all(folder);
}

TEST(Workbench, ALongRunCanBeCancelledAndGoesOn) {
  Workbench bench({});
  bench.open(small_setup(References::kBoth), false);
  bench.wait_idle();
  bench.run_until("to the end", [](const Session&) { return false; });
  while (bench.snapshot()->last.step < 1) watch(bench), bench.poll();
  bench.cancel();
  bench.wait_idle();
  const std::int64_t stopped = bench.snapshot()->last.step;
  bench.next_step();
  bench.wait_idle();
  EXPECT_GE(bench.snapshot()->last.step, stopped);
  EXPECT_FALSE(bench.busy());
}

}  // namespace workbench_test
}  // namespace attnscope
