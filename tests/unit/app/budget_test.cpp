// How much of a tolerance was used, in words.
#include "app/views/budget.h"

#include <gtest/gtest.h>

#include <limits>

namespace attnscope::budget_test {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Budget, InWords) {
  EXPECT_EQ(budget_words({0.31}), "31 % of the tolerance");
  EXPECT_EQ(budget_words({3.4}), "3.4 times the tolerance");
  EXPECT_EQ(budget_words({kInfinity}), "it must be exact");
  EXPECT_EQ(budget_words({1, true}), "1 ulp");
}

TEST(Budget, Short) {
  EXPECT_EQ(budget_short({0}), "0 %");
  EXPECT_EQ(budget_short({0.0002489}), "< 0.1 %");
  EXPECT_EQ(budget_short({0.4885}), "49 %");
  EXPECT_EQ(budget_short({1}), "100 %");
  EXPECT_EQ(budget_short({1, true}), "1 ulp");
  EXPECT_EQ(budget_short({123}), "123x");
  EXPECT_EQ(budget_short({4e4}), "4e4x");
  EXPECT_EQ(budget_short({kInfinity}), "not exact") << "it is wrong, and had to be exact";
}

TapResult with_steps(double max_ulp, Verdict verdict) {
  TapResult result;
  result.verdict = verdict;
  result.budget_used = 1;
  result.introduced = ErrorFigures{};
  result.introduced->max_ulp = max_ulp;
  return result;
}

TEST(Budget, IsOneUlpOnlyWhereNothingIsFurtherAway) {
  EXPECT_TRUE(budget_of(with_steps(1, Verdict::kRounding)).one_ulp);
  EXPECT_FALSE(budget_of(with_steps(2, Verdict::kRounding)).one_ulp);
  EXPECT_FALSE(budget_of(with_steps(0, Verdict::kEqual)).one_ulp);
  EXPECT_FALSE(budget_of(with_steps(1, Verdict::kWrong)).one_ulp) << "a limit below one step";
  EXPECT_FALSE(budget_of(TapResult{}).one_ulp);
}

}  // namespace attnscope::budget_test
