// References that lag behind the session say what they say at once: the same results, in the same
// order.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/reports/run.h"
#include "app/wiring/wiring.h"
#include "kernels/params/op_table.h"
#include "tests/unit/app/host_device.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope {
namespace lagging_references_test {

std::string text_of(const std::optional<ErrorFigures>& f) {
  if (!f) return "none";
  return fmt::format("{} {} {} {} {} {} {} {} {} {}", f->max_abs, f->max_rel, f->cosine,
                     f->differing, f->beyond, f->median, f->p90, f->p99, f->max_ulp, f->recall);
}

std::string text_of(const TapResult& r) {
  std::string text = fmt::format("step {} layer {} {} {} by {} {} of {}: {} {} [{}] ", r.step,
                                 r.layer, as_op_find(r.op)->name, r.tap, r.lane, r.elements,
                                 r.tolerance, verdict_name(r.verdict), r.budget_used, r.note);
  text += fmt::format("introduced {} inherited {} quantisation {}", text_of(r.introduced),
                      text_of(r.inherited), text_of(r.quantisation));
  if (r.selection) {
    text += fmt::format(" selection {} {} {} {} {}", r.selection->tokens, r.selection->entries,
                        r.selection->margin, r.selection->score_difference, r.selection->recall);
  }
  if (r.mass_moved) text += fmt::format(" mass {}", *r.mass_moved);
  return text;
}

std::vector<std::string> results_of(const Scenario& scenario, const std::string& lane,
                                    References references, bool beside) {
  LaneRegistry lanes = all_lanes();
  lanes.set_references_beside(beside);
  RunOptions options;
  options.session.references = references;
  options.session.lanes = {lane};
  options.session.threads = 2;
  auto run = run_scenario(scenario, lanes, options, {});
  EXPECT_TRUE(run) << run.error().text();
  if (!run) return {};
  EXPECT_FALSE(run->error) << run->error->text();
  std::vector<std::string> all = {
      run->summary.verdict(),
      fmt::format("{} rows, worst {}, drift {} and {}", run->witnessed.rows, run->witnessed.worst,
                  run->witnessed.drift, run->witnessed.sim_drift)};
  for (const StepRecord& step : run->steps) {
    for (const TapResult& r : step.results) all.push_back(text_of(r));
  }
  return all;
}

void hold(const Scenario& scenario, const std::string& lane, References references,
          const char* verdict) {
  const auto at_once = results_of(scenario, lane, references, false);
  const auto later = results_of(scenario, lane, references, true);
  ASSERT_GT(at_once.size(), 100u);
  EXPECT_EQ(at_once.front(), verdict);
  ASSERT_EQ(later.size(), at_once.size());
  for (std::size_t i = 0; i < later.size(); ++i) ASSERT_EQ(later[i], at_once[i]) << i;
}

TEST(LaggingReferences, SayTheSameOfASoundLane) {
  hold(small_scenario(), "cpu", References::kBoth, "ok");
}

TEST(LaggingReferences, SayTheSameOfAWrongSelection) {
  Scenario scenario = small_scenario(400, 2);
  scenario.model.index_topk = 64;
  hold(scenario, "mutant:topk_one_short", References::kSim, "wrong");
}

TEST(LaggingReferences, SayTheSameOfRowsThatMoved) {
  hold(small_scenario(), "mutant:last_row_not_written", References::kSim, "wrong");
}

TEST(LaggingReferences, SayTheSameOfALaneThatWritesToItsInput) {
  hold(small_scenario(), "mutant:inverse_rope_in_place", References::kSim, "wrong");
}

// Ops of a device whose tensors are judged where they are, while the next ones run.
TEST(LaggingReferences, SayTheSameOfOpsTooLargeToCopy) {
  Scenario scenario = small_scenario(1000, 2);
  scenario.model = narrow_model({0, 2});
  scenario.limits = {1024, 8};
  std::vector<std::string> results[2];
  for (const bool beside : {false, true}) {
    LaneRegistry lanes = host_device::lanes();
    lanes.set_references_beside(beside);
    SessionOptions options;
    options.references = References::kSim;
    options.lanes = {"cuda"};
    options.threads = 2;
    options.references_lag = true;
    options.device = std::make_shared<HostDevice>();
    auto session = Session::create(scenario, lanes, options);
    ASSERT_TRUE(session) << session.error().text();
    while (!(*session)->finished()) {
      const auto ok = (*session)->step();
      ASSERT_TRUE(ok) << ok.error().text();
    }
    std::int64_t largest = 0;
    for (const StepRecord& step : (*session)->history()) {
      for (const TapResult& r : step.results) {
        results[beside].push_back(text_of(r));
        EXPECT_NE(r.verdict, Verdict::kWrong) << results[beside].back();
        largest = std::max(largest, r.elements);
      }
    }
    EXPECT_GE(largest, 2 << 20) << "bf16 of 4 MB";
  }
  ASSERT_GT(results[0].size(), 100u);
  EXPECT_EQ(results[1], results[0]);
}

TEST(LaggingReferences, StopWithTheSession) {
  LaneRegistry lanes = all_lanes();
  lanes.set_references_beside(true);
  RunOptions options;
  options.session.references = References::kSim;
  int asked = 0;
  options.stopped = [&asked] { return ++asked > 30; };
  auto run = run_scenario(small_scenario(), lanes, options, {});
  ASSERT_TRUE(run);
  EXPECT_TRUE(run->stopped);
  ASSERT_FALSE(run->steps.empty());
  // Each op that has run has been judged.
  std::vector<as_op_id> judged;
  for (const TapResult& r : run->steps.back().results) judged.push_back(r.op);
  ASSERT_FALSE(judged.empty());
  EXPECT_EQ(judged.back(), run->steps.back().timings.back().op);
}

}  // namespace lagging_references_test
}  // namespace attnscope
