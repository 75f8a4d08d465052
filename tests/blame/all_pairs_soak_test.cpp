// Minutes long: every pair of planted bugs.
#include "tests/blame/trial.h"

namespace attnscope {
namespace {

TEST(PlantedBugsSoak, InEveryPairNobodyElseIsBlamed) {
  Trial trial;
  const auto& all = planted();
  int pairs = 0, both = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = i + 1; j < all.size(); ++j) {
      if (all[i].op == all[j].op) continue;
      ++pairs;
      check_pair(trial, all[i], all[j], &both);
    }
  }
  fmt::print("{} pairs, both blamed in {}\n", pairs, both);
  EXPECT_GE(both * 100, pairs * 95);
}

}  // namespace
}  // namespace attnscope
