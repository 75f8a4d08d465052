#include "app/reports/record_estimate.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "app/reports/capture_record.h"
#include "app/wiring/wiring.h"
#include "app/workbench/workbench.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope {
namespace record_estimate_test {

// Within a third of what the recording is then.
TEST(RecordEstimate, IsNearWhatIsWritten) {
  RunSetup setup;
  setup.scenario = small_scenario(60, 6);
  setup.references = References::kNone;
  Workbench bench({});
  bench.open(setup, false);
  bench.run_until("to the end", [](const Session&) { return false; });
  bench.wait_idle();
  const auto folder =
      std::filesystem::temp_directory_path() / ("attnscope-estimate-" + std::to_string(getpid()));
  for (const CaptureLevel level :
       {CaptureLevel::kSummary, CaptureLevel::kTables, CaptureLevel::kFull}) {
    const auto estimate = estimate_recording(*bench.snapshot(), setup.scenario, level);
    ASSERT_TRUE(estimate) << estimate.error().text();
    RecordOptions options;
    options.run.session.references = References::kNone;
    options.capture.level = level;
    const std::string path = (folder / capture_level_name(level)).string() + ".acap";
    std::filesystem::create_directories(folder);
    const auto made = record_scenario(setup.scenario, all_lanes(), options, path, nullptr);
    ASSERT_TRUE(made) << made.error().text();
    EXPECT_NEAR(static_cast<double>(estimate->steps), static_cast<double>(made->totals.steps), 1)
        << capture_level_name(level);
    const double ratio =
        static_cast<double>(estimate->bytes) / static_cast<double>(made->totals.bytes);
    EXPECT_GT(ratio, 0.67) << capture_level_name(level);
    EXPECT_LT(ratio, 1.5) << capture_level_name(level);
  }
  std::filesystem::remove_all(folder);
}

TEST(RecordEstimate, NeedsAStep) {
  Workbench bench({});
  RunSetup setup;
  setup.scenario = small_scenario(10, 2);
  setup.references = References::kNone;
  bench.open(setup, false);
  bench.wait_idle();
  const auto estimate = estimate_recording(*bench.snapshot(), setup.scenario, CaptureLevel::kFull);
  ASSERT_FALSE(estimate);
  EXPECT_EQ(estimate.error().code, AS_USAGE);
}

}  // namespace record_estimate_test
}  // namespace attnscope
