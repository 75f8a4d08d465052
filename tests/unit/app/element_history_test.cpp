// One element from step to step.
#include "app/views/element_history.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/app/trace_builder.h"

namespace attnscope {
namespace element_history_test {

std::shared_ptr<const StepTrace> step_with(std::int64_t number, std::int64_t known,
                                           std::int64_t tokens, const std::vector<float>& values) {
  auto step = std::make_shared<StepTrace>(make_step(number, known, tokens));
  OpTrace& op = add_op(*step, 2, AS_OP_ATTN_NORM);
  add_tap(op, "y", values, tokens);
  op.taps.back().axes = "T,hidden";
  return step;
}

TEST(ElementHistory, FollowsTheNewestRowOfTheRequest) {
  auto first = step_with(4, 10, 2, {1, 2, 3, 4});
  auto second = step_with(5, 11, 1, {5, 6});
  auto& op = const_cast<OpTrace&>(*second->ops[0]);
  add_reference(op, std::vector<double>{5, 6.5}, 1);
  const Place place{0, 2, AS_OP_ATTN_NORM};
  const ElementHistory history =
      element_history({first, second}, {place, "y", 0, TapIndex({0, 1}), 0});
  EXPECT_EQ(history.steps, (std::vector<double>{4, 5}));
  EXPECT_EQ(history.values, (std::vector<double>{4, 6}));
  EXPECT_TRUE(std::isnan(history.references[0]));
  EXPECT_EQ(history.references[1], 6.5);
  EXPECT_EQ(history_sentence(history, "y of hidden 1", 5, "kept"),
            "y of hidden 1: 6 in step 5, from 4 to 6 over 2 kept steps.");
  EXPECT_EQ(history_sentence(history, "y of hidden 1", 7, "recorded"),
            "y of hidden 1: from 4 to 6 over 2 recorded steps.");
}

TEST(ElementHistory, LeavesOutStepsThatDoNotHoldIt) {
  auto narrow = step_with(4, 10, 1, {1});
  auto wide = step_with(5, 11, 1, {5, 6});
  const Place place{0, 2, AS_OP_ATTN_NORM};
  const auto steps = [&](std::int32_t request, const TapIndex& index) {
    return element_history({narrow, wide}, {place, "y", request, index, 0}).steps;
  };
  EXPECT_EQ(steps(0, TapIndex({0, 1})), (std::vector<double>{5}));
  EXPECT_TRUE(steps(1, TapIndex({0, 0})).empty());  // no such request
  EXPECT_TRUE(element_history({wide}, {{0, 3, AS_OP_ATTN_NORM}, "y", 0, TapIndex({0, 0}), 0})
                  .steps.empty());  // no such layer
  EXPECT_EQ(history_sentence({}, "y of hidden 1", 5, "kept"),
            "y of hidden 1 holds no value in any kept step.");
}

}  // namespace element_history_test
}  // namespace attnscope
