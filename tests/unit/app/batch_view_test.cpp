// The batch of a step as the scenario panel and `show` tell it.
#include "app/views/batch_view.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/reports/capture_record.h"
#include "app/reports/capture_report.h"
#include "app/wiring/wiring.h"
#include "tests/unit/app/cli_fixture.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace batch_view_test {

TEST(BatchView, EveryStepIsTakenApart) {
  auto session = small_session(References::kNone, small_scenario(150, 6));
  TraceRecorder recorder;
  session->set_observer(&recorder);
  while (!session->finished()) ASSERT_TRUE(session->step());
  const auto info = session_info(*session);
  std::int64_t prefill = 0, graphs = 0;
  for (const auto& step : recorder.traces()) {
    const BatchView view = batch_view(*info, *step);
    EXPECT_EQ(view.plan.tokens, step->metadata.num_tokens_in_step());
    EXPECT_EQ(view.plan.graph > 0, view.plan.why_none.empty());
    for (const BatchLine& line : view.rows) {
      const std::int64_t query =
          step->metadata.num_scheduled_tokens[static_cast<std::size_t>(line.row)];
      EXPECT_EQ(line.query, query);
      EXPECT_EQ(line.decode, query <= 1);
      EXPECT_EQ(line.chunks.empty(), line.decode);
    }
    if (view.plan.prefills() > 0) {
      ++prefill;
      EXPECT_EQ(view.plan.graph, 0);
      EXPECT_EQ(view.chunks.size(), 3u) << "window alone, ratio 4, ratio 128";
      EXPECT_NE(view.sentence.find("No graph replays it: a prompt is computed"), std::string::npos)
          << view.sentence;
    } else if (view.plan.graph > 0) {
      ++graphs;
      EXPECT_NE(view.graph.find("The graph of"), std::string::npos);
      EXPECT_NE(view.graph.find("no GPU"), std::string::npos) << view.graph;
    }
  }
  EXPECT_GT(prefill, 0);
  EXPECT_GT(graphs, 0);
}

TEST(BatchView, DraftsOfTheScenarioAreDecodes) {
  Scenario scenario = small_scenario(60, 8);
  scenario.serving.drafts.tokens = 3;
  auto session = small_session(References::kNone, scenario);
  TraceRecorder recorder;
  session->set_observer(&recorder);
  while (!session->finished()) ASSERT_TRUE(session->step());
  const auto info = session_info(*session);
  EXPECT_EQ(info->draft_tokens, 3);
  EXPECT_EQ(batch_rules(*info).decode_threshold, 4);
  std::int64_t verified = 0;
  for (const auto& step : recorder.traces()) {
    for (const BatchLine& line : batch_view(*info, *step).rows) {
      if (line.computed >= info->prompt_tokens[static_cast<std::size_t>(line.request)]) {
        EXPECT_TRUE(line.decode);
        verified += line.query > 1 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(verified, 0);
}

class BatchCli : public CliTest {};

TEST_F(BatchCli, ShowTellsTheBatchOfAStep) {
  RecordOptions options;
  options.run.session.references = References::kNone;
  options.run.steps = 2;
  options.capture.level = CaptureLevel::kTables;
  const std::string file = path("small.acap");
  ASSERT_TRUE(record_scenario(small_scenario(), all_lanes(), options, file, nullptr));
  const Outcome json = run({"show", file, "--step", "0", "--json"});
  ASSERT_EQ(json.code, 0) << json.err;
  const auto batch = nlohmann::json::parse(json.out)["shown"]["batch"];
  EXPECT_EQ(batch["graph"], 0);
  EXPECT_FALSE(batch["why_no_graph"].get<std::string>().empty());
  EXPECT_FALSE(batch["prefill_chunks"].empty());
  EXPECT_EQ(batch["requests"][0]["decode"], false);
  const Outcome text = run({"show", file, "--step", "0"});
  EXPECT_NE(text.out.find("prefill chunk at ratio 4: "), std::string::npos) << text.out;
}

}  // namespace batch_view_test
}  // namespace attnscope
