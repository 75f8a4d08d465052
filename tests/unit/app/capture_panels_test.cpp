// What panels say on captures of the lower levels: which ops' taps are missing, not those of the op
// that the cursor happens to stand on; and what every level has.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/reports/capture_record.h"
#include "app/views/cache_view.h"
#include "app/views/coverage_view.h"
#include "app/views/pipeline_view.h"
#include "app/wiring/wiring.h"
#include "app/workbench/missing_ops.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope {
namespace capture_panels_test {

namespace fs = std::filesystem;

class CapturePanelsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("attnscope-panels-" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string record(CaptureLevel level) const {
    RecordOptions options;
    options.run.session.references = References::kNone;
    options.run.session.threads = 2;
    options.run.steps = 2;
    options.capture.level = level;
    std::string path = (folder_ / capture_level_name(level)).string() + ".acap";
    auto made = record_scenario(small_scenario(), all_lanes(), options, path, nullptr);
    EXPECT_TRUE(made) << made.error().text();
    return path;
  }

  fs::path folder_;
};

TEST_F(CapturePanelsTest, TheOpsThatAPanelDrawsAreNamed) {
  Workbench bench({});
  ASSERT_TRUE(bench.open_capture(record(CaptureLevel::kTables)));
  bench.go_to({1, 1, AS_OP_WO_B});
  EXPECT_EQ(missing_ops(bench, 1, {AS_ROLE_SELECT, AS_ROLE_ATTENTION}),
            "The taps of indexer_topk and sparse_attention of layer 1 were not recorded: this "
            "capture's level is tables. Record it with: attnscope record small -o " +
                (folder_ / "tables.acap").string() +
                " --force --level full --layer 1 --op indexer_topk,sparse_attention");
  ASSERT_TRUE(bench.open_capture(record(CaptureLevel::kSummary)));
  EXPECT_EQ(missing_ops(bench, -1, {AS_ROLE_ATTENTION}),
            "The taps of sparse_attention were not recorded: this capture's level is summary. "
            "Record it with: attnscope record small -o " +
                (folder_ / "summary.acap").string() +
                " --force --level full --op sparse_attention");
  ASSERT_TRUE(bench.open_capture(record(CaptureLevel::kFull)));
  EXPECT_EQ(missing_ops(bench, 1, {AS_ROLE_SELECT, AS_ROLE_ATTENTION}), "");
}

TEST_F(CapturePanelsTest, ASummaryKnowsHowLongOpsTook) {
  Workbench bench({});
  ASSERT_TRUE(bench.open_capture(record(CaptureLevel::kSummary)));
  for (const std::int64_t step : {0, 1, 0}) {
    bench.go_to({step, 1, AS_OP_WO_B});
    const Snapshot& shown = *bench.snapshot();
    ASSERT_EQ(shown.trace(step), nullptr);
    const PipelinePart layer{PipelinePart::Kind::kLayer, 1};
    for (const PipelineCard& card : pipeline_state(shown, layer, step).cards) {
      EXPECT_TRUE(card.ran) << card.label;
      EXPECT_GE(card.microseconds, 0) << card.label;
    }
    EXPECT_EQ(shown.cost({1 - step, 1, AS_OP_WO_B}), nullptr);
  }
  ASSERT_TRUE(bench.open_capture(record(CaptureLevel::kTables)));
  bench.go_to({1, 1, AS_OP_WO_B});
  EXPECT_TRUE(bench.snapshot()->costs.empty());
}

TEST_F(CapturePanelsTest, EveryLevelKnowsWhichPathsWereTaken) {
  for (const CaptureLevel level : {CaptureLevel::kSummary, CaptureLevel::kTables}) {
    Workbench bench({});
    ASSERT_TRUE(bench.open_capture(record(level)));
    const Snapshot& shown = *bench.snapshot();
    const CoverageView view = coverage_view(*shown.info, shown, 1);
    EXPECT_EQ(view.why_empty, "");
    EXPECT_EQ(view.steps, 2);
    EXPECT_GT(view.met, 0);
    EXPECT_EQ(view.unwatched, 0);
  }
}

// A step of every level has its block events; captures of before have them in the tables alone.
TEST_F(CapturePanelsTest, EveryLevelTellsTheLivesOfBlocks) {
  for (const CaptureLevel level : {CaptureLevel::kSummary, CaptureLevel::kTables}) {
    const std::string path = record(level);
    auto capture = Capture::open(path);
    ASSERT_TRUE(capture) << capture.error().text();
    const BlockEvents known = kept_block_events((*capture)->summaries());
    EXPECT_EQ(known.steps, "all 2 steps");
    EXPECT_GT(known.events.size(), 10u);
    if (level == CaptureLevel::kTables) {
      BlockEvents tables;
      for (const std::int64_t step : {0, 1}) {
        add_block_events(step, (*(*capture)->trace(step))->cache_events, tables);
      }
      EXPECT_EQ(tables.events.size(), known.events.size());
    }
    // Without them, as an older program wrote it.
    const std::string steps = path + "/steps.jsonl";
    std::ifstream in(steps);
    std::string without;
    for (std::string line; std::getline(in, line);) {
      nlohmann::json json = nlohmann::json::parse(line);
      json.erase("sum");
      EXPECT_EQ(json.erase("cache_events"), 1u);
      without += checked_line(json.dump());
    }
    in.close();
    std::ofstream(steps) << without;
    capture = Capture::open(path);
    ASSERT_TRUE(capture) << capture.error().text();
    EXPECT_TRUE(kept_block_events((*capture)->summaries()).events.empty());
    EXPECT_EQ((*capture)->summaries().size(), 2u);
  }
}

TEST_F(CapturePanelsTest, WhatIsSavedHasTheEventsOfStepsWhoseTensorsAreGone) {
  const Scenario scenario = small_scenario();
  SessionOptions options;
  options.references = References::kNone;
  auto session = Session::create(scenario, all_lanes(), options);
  ASSERT_TRUE(session);
  TraceOptions few;
  few.budget_bytes = 0;
  TraceRecorder recorder(few);
  (*session)->set_observer(&recorder);
  for (int step = 0; step < 6; ++step) ASSERT_TRUE((*session)->step());
  const auto snapshot = take_snapshot(**session, recorder, session_info(**session), 1);
  const std::string path = (folder_ / "saved.acap").string();
  ASSERT_TRUE(write_capture(*snapshot, scenario, path));
  auto capture = Capture::open(path);
  ASSERT_TRUE(capture) << capture.error().text();
  EXPECT_EQ((*capture)->summaries().size(), 2u) << "the steps that are kept";
  const BlockEvents known = kept_block_events((*capture)->summaries());
  const BlockEvents all = kept_block_events(snapshot->steps);
  EXPECT_EQ(known.steps, "all steps from 0 on");
  ASSERT_EQ(known.events.size(), all.events.size());
  for (std::size_t i = 0; i < all.events.size(); ++i) {
    EXPECT_EQ(known.events[i].first, all.events[i].first);
    EXPECT_EQ(known.events[i].second.block, all.events[i].second.block);
    EXPECT_EQ(known.events[i].second.kind, all.events[i].second.kind);
  }
}

}  // namespace capture_panels_test
}  // namespace attnscope
