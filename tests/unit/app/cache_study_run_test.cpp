// Studies on a thread of their own: none is lost where nobody looks while the next one begins.
#include "app/workbench/cache_study_run.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "engine/family/models.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope {
namespace cache_study_run_test {

// Until poll() has taken over so many; false after a minute.
bool made(CacheStudyRun& run, std::uint64_t count) {
  for (int i = 0; i < 6000 && run.has_made() < count; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    run.poll();
  }
  return run.has_made() == count;
}

TEST(CacheStudyRun, CountsEveryStudyThatWasMade) {
  Workbench bench({});
  RunSetup setup;
  setup.scenario = small_scenario(90, 4);
  setup.scenario.model = *preset("tiny-llama");
  setup.references = References::kNone;
  bench.open(std::move(setup), false);
  bench.wait_idle();
  CacheStudyRun run;
  EXPECT_EQ(run.report(), nullptr);
  ASSERT_TRUE(run.begin(bench, {32}));
  EXPECT_FALSE(run.begin(bench, {48})) << "one at a time";
  ASSERT_TRUE(made(run, 1));
  EXPECT_EQ(run.report()->formats.front().points.front().length, 32);
  // Nobody asks when the second one ends: the third takes over what it made.
  ASSERT_TRUE(run.begin(bench, {48}));
  Result<void> begun = run.begin(bench, {64});
  for (int i = 0; i < 6000 && !begun; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    begun = run.begin(bench, {64});
  }
  ASSERT_TRUE(begun) << begun.error().text();
  EXPECT_EQ(run.has_made(), 2u);
  EXPECT_EQ(run.report()->formats.front().points.front().length, 48);
  ASSERT_TRUE(made(run, 3));
  EXPECT_EQ(run.report()->formats.front().points.front().length, 64);
}

}  // namespace cache_study_run_test
}  // namespace attnscope
