// The key of a prompt's end inside a block of a full group, in profile A.
#include <gtest/gtest.h>

#include "engine/sched/workload_file.h"

namespace attnscope {
namespace prompt_end_test {

// A block that has become full since is found under the key of the prompt's end as well.
// One full group of 32 tokens and two sliding ones of 16, all flagged: the end lies inside a block
// for every second prompt.
TEST(PromptEnd, IsRegisteredAgainBehindTheFullBlock) {
  Result<Workload> w = load_workload("g17", CacheProfile::kA);
  ASSERT_TRUE(w) << w.error().text();
  Result<WorkloadResult> result = run_workload(*w);
  ASSERT_TRUE(result) << result.error().text();
  EXPECT_EQ(result->max_keys, 346);
}

}  // namespace prompt_end_test
}  // namespace attnscope
