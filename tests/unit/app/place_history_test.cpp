#include "app/workbench/place_history.h"

#include <gtest/gtest.h>

namespace attnscope {
namespace place_history_test {

Visit at(std::int64_t step) { return {{step, 1, AS_OP_WO_A}, {}}; }

TEST(PlaceHistory, GoesBackAndForwardAgain) {
  PlaceHistory history;
  EXPECT_FALSE(history.back(at(0))) << "nothing was left";
  history.leave(at(0));
  history.leave(at(1));
  const auto one = history.back(at(2));
  ASSERT_TRUE(one);
  EXPECT_EQ(one->place.step, 1);
  const auto zero = history.back(at(1));
  ASSERT_TRUE(zero);
  EXPECT_EQ(zero->place.step, 0);
  EXPECT_FALSE(history.has_back());
  EXPECT_EQ(history.forward(at(0))->place.step, 1);
  EXPECT_EQ(history.forward(at(1))->place.step, 2);
  EXPECT_FALSE(history.has_forward());
}

TEST(PlaceHistory, AJumpForgetsWhatLayAhead) {
  PlaceHistory history;
  history.leave(at(0));
  ASSERT_TRUE(history.back(at(1)));
  ASSERT_TRUE(history.has_forward());
  history.leave(at(0));
  EXPECT_FALSE(history.has_forward());
  EXPECT_EQ(history.back(at(7))->place.step, 0);
}

TEST(PlaceHistory, StaysNowhere) {
  PlaceHistory history;
  history.leave(at(0));
  history.leave(at(1));
  // Who walked to a place that was left goes one further back.
  EXPECT_EQ(history.back(at(1))->place.step, 0);
  history.clear();
  EXPECT_FALSE(history.has_back());
  EXPECT_FALSE(history.has_forward());
}

TEST(PlaceHistory, KeepsTheNewest) {
  PlaceHistory history;
  const auto count = static_cast<std::int64_t>(PlaceHistory::kMost) + 20;
  for (std::int64_t i = 0; i < count; ++i) history.leave(at(i));
  std::int64_t steps = 0, last = count;
  while (auto visit = history.back(at(last))) {
    last = visit->place.step;
    ++steps;
  }
  EXPECT_EQ(steps, static_cast<std::int64_t>(PlaceHistory::kMost));
  EXPECT_EQ(last, 20);
}

}  // namespace place_history_test
}  // namespace attnscope
