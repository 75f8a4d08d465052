// Times of ops on a device, as the timeline and the pipeline show them: what passed there, not what
// the host spent on launching and copying.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/reports/report.h"
#include "app/views/pipeline_view.h"
#include "app/views/timeline_view.h"
#include "engine/session/snapshot.h"
#include "tests/unit/app/host_device.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope {
namespace device_times_test {

constexpr double kOp = 7.0;  // what the stand-in says of every op

struct Watched {
  std::unique_ptr<Session> session;
  TraceRecorder recorder{TraceOptions{}};
};

std::unique_ptr<Watched> watch(std::vector<std::string> lanes,
                               const TensorParallel& parallel = {}) {
  auto watched = std::make_unique<Watched>();
  SessionOptions options;
  options.references = References::kNone;
  options.lanes = std::move(lanes);
  options.threads = 2;
  options.device = std::make_shared<HostDevice>();
  Scenario scenario = small_scenario();
  scenario.parallel = parallel;
  auto session = Session::create(scenario, host_device::lanes(), options);
  EXPECT_TRUE(session) << session.error().text();
  watched->session = std::move(*session);
  watched->session->set_observer(&watched->recorder);
  return watched;
}

std::shared_ptr<const Snapshot> picture(const Watched& watched) {
  return take_snapshot(*watched.session, watched.recorder, session_info(*watched.session), 1);
}

bool on_device(as_op_id op) { return as_op_find(op)->phase != AS_PHASE_BEFORE; }

// Steps of prefill, which run op by op, and of decoding, which have a plan.
void expect_device_times(Watched& watched) {
  while (!watched.session->finished()) {
    const auto ok = watched.session->step();
    ASSERT_TRUE(ok) << ok.error().text();
    const auto shown = picture(watched);
    const StepSummary& summary = *shown->steps.back();
    const StepTrace* trace = shown->trace(summary.step);
    ASSERT_NE(trace, nullptr);
    double sum = 0;
    for (const auto& op : trace->ops) {
      sum += op->microseconds;
      if (!on_device(op->place.op)) continue;
      EXPECT_EQ(op->microseconds, kOp) << as_op_find(op->place.op)->name;
      EXPECT_EQ(op->lane, "cuda");
    }
    EXPECT_NEAR(summary.seconds * 1e6, sum, 0.01 * sum);
    for (const int layer : shown->info->config.layers) {
      const auto cell = std::ranges::find(summary.layers, layer, &LayerCell::layer);
      ASSERT_NE(cell, summary.layers.end());
      const PipelineState state =
          pipeline_state(*shown, {PipelinePart::Kind::kLayer, layer}, summary.step);
      EXPECT_DOUBLE_EQ(cell->microseconds, kOp * static_cast<double>(state.cards.size()));
      for (const PipelineCard& card : state.cards) {
        EXPECT_EQ(card.microseconds, kOp) << as_op_find(card.op)->name;
        EXPECT_NE(pipeline_card_text(card).find("7 µs"), std::string::npos)
            << pipeline_card_text(card);
      }
      const std::string hover = timeline_cell_text(*shown, summary, layer);
      EXPECT_NE(hover.find("s here"), std::string::npos) << hover;
    }
  }
}

TEST(DeviceTimes, ReachTimelineAndPipeline) { expect_device_times(*watch({"cuda"})); }

TEST(DeviceTimes, AreThoseOfTheRankWithoutItsPeers) {
  expect_device_times(*watch({"cuda"}, {2, 1}));
}

TEST(DeviceTimes, OfAnOpOfTheHostAreTheHosts) {
  auto watched = watch({"cuda", "q_b_proj=cpu"});
  ASSERT_TRUE(watched->session->step());
  const auto shown = picture(*watched);
  for (const auto& op : shown->trace(0)->ops) {
    if (op->place.op == AS_OP_Q_B_PROJ) {
      EXPECT_GT(op->microseconds, 0);
      EXPECT_NE(op->microseconds, kOp);
    } else if (on_device(op->place.op)) {
      EXPECT_EQ(op->microseconds, kOp);
    }
  }
}

// A step that is one recorded graph has no times of single ops unless they are asked for; its
// report says null for them, not a number.
TEST(DeviceTimes, AreNullInTheReportOfARunThatDidNotAskForThem) {
  for (const bool asked : {false, true}) {
    RunOptions options;
    options.session.references = References::kNone;
    options.session.lanes = {"cuda"};
    options.session.threads = 2;
    options.session.device = std::make_shared<HostDevice>();
    options.session.op_times = asked;
    const auto run = run_scenario(small_scenario(), host_device::lanes(), options, {});
    ASSERT_TRUE(run) << run.error().text();
    const nlohmann::json report = make_report(small_scenario(), options, *run, "key");
    int planned = 0;
    for (const auto& step : report["steps"]) {
      planned += step["decode_only"].get<bool>();
      for (const auto& timing : step["timings"]) {
        const auto op = timing["op"].get<std::string>();
        if (op == "schedule" || op == "block_tables") {
          EXPECT_GT(timing["microseconds"].get<double>(), 0) << op;
        } else if (step["decode_only"].get<bool>()) {
          EXPECT_EQ(timing["microseconds"], asked ? nlohmann::json(kOp) : nlohmann::json()) << op;
        } else {
          EXPECT_TRUE(timing["microseconds"].is_number()) << op;
        }
      }
    }
    EXPECT_GT(planned, 0);
  }
}

}  // namespace device_times_test
}  // namespace attnscope
