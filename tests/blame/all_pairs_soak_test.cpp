// Minutes long: every pair of planted bugs, in parts that can run side by side:
//   for i in $(seq 0 15); do
//     GTEST_TOTAL_SHARDS=16 GTEST_SHARD_INDEX=$i test_soak --gtest_filter='*AllPairs*' &
//   done; wait
#include "tests/blame/trial.h"

namespace attnscope {
namespace all_pairs_soak_test {

constexpr int kParts = 16;

class AllPairsSoak : public testing::TestWithParam<int> {};

TEST_P(AllPairsSoak, NobodyElseIsBlamed) {
  Trial trial;
  const auto& all = planted();
  int number = 0, pairs = 0, both = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = i + 1; j < all.size(); ++j) {
      if (all[i].op == all[j].op || number++ % kParts != GetParam()) continue;
      ++pairs;
      const int before = both;
      check_pair(trial, all[i], all[j], &both);
      if (both == before) fmt::print("one alone is blamed: {}, {}\n", all[i].name, all[j].name);
    }
  }
  fmt::print("part {} of {}: {} of {} pairs, both blamed in {}\n", GetParam(), kParts, pairs,
             number, both);
  EXPECT_GE(both * 100, pairs * 90);
}

INSTANTIATE_TEST_SUITE_P(Parts, AllPairsSoak, testing::Range(0, kParts));

}  // namespace all_pairs_soak_test
}  // namespace attnscope
