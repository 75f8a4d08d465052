// Sweeps on a thread of their own: none is lost where nobody looks while the next one begins.
#include "app/workbench/row_sweep_run.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace attnscope {
namespace row_sweep_run_test {

GeneratorOptions of_steps(std::int64_t steps) {
  return {.context = 300, .batch = 2, .topk = 20, .steps = steps, .layers = 2, .overlap = 0.7};
}

TEST(RowSweepRun, CountsEverySweepThatWasMade) {
  RowSweepRun run;
  EXPECT_EQ(run.report(), nullptr);
  ASSERT_TRUE(run.begin(of_steps(3)));
  // Nobody asks when the first one ends: the second takes over what it made.
  Result<void> begun = run.begin(of_steps(4));
  for (int i = 0; i < 6000 && !begun; ++i) {
    EXPECT_EQ(begun.error().message, "a sweep is running already");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    begun = run.begin(of_steps(4));
  }
  ASSERT_TRUE(begun) << begun.error().text();
  EXPECT_EQ(run.has_made(), 1u);
  ASSERT_NE(run.report(), nullptr);
  EXPECT_EQ(run.report()->steps, 3);
  for (int i = 0; i < 6000 && run.runs(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    run.poll();
  }
  EXPECT_EQ(run.has_made(), 2u);
  EXPECT_EQ(run.report()->steps, 4);
  EXPECT_EQ(run.error(), "");
  EXPECT_FALSE(run.running());
}

}  // namespace row_sweep_run_test
}  // namespace attnscope
