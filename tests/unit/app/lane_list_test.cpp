#include "app/wiring/lane_list.h"

#include <gtest/gtest.h>

namespace attnscope {
namespace lane_list_test {

TEST(LaneList, OneOpAtATime) {
  std::vector<std::string> lanes = {"cpu"};
  EXPECT_EQ(base_lane(lanes), "cpu");
  set_lane(lanes, AS_OP_SAMPLE, "ref.sim");
  set_lane(lanes, AS_OP_WO_A, "ref.exact");
  set_lane(lanes, AS_OP_SAMPLE, "other");
  EXPECT_EQ(lane_of(lanes, AS_OP_SAMPLE), "other");
  EXPECT_EQ(lane_of(lanes, AS_OP_WO_B), "");
  set_base_lane(lanes, "gpu");
  EXPECT_EQ(lanes, (std::vector<std::string>{"gpu", "wo_a=ref.exact", "sample=other"}));
  set_lane(lanes, AS_OP_WO_A, "");
  EXPECT_EQ(lanes, (std::vector<std::string>{"gpu", "sample=other"}));
}

}  // namespace lane_list_test
}  // namespace attnscope
