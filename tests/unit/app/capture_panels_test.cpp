// What panels say on captures of the lower levels: which ops' taps are missing, not those of the op
// that the cursor happens to stand on; and what every level has.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "app/reports/capture_record.h"
#include "app/views/coverage_view.h"
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

}  // namespace capture_panels_test
}  // namespace attnscope
