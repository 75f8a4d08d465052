#include "engine/session/step/frame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace attnscope {
namespace {

TEST(FrameTest, KeepsWhatItsTensorsOutgrewUntilTold) {
  Frame frame(Frame::Kind::kEngine);
  constexpr ValueId kValue = 3;
  const as_tensor small = frame.make(kValue, AS_BF16, {2, 64});
  std::memset(small.data, 0x5A, 256);
  EXPECT_EQ(frame.make(kValue, AS_BF16, {1, 64}).data, small.data) << "there was room";
  const as_tensor large = frame.make(kValue, AS_BF16, {300, 64});
  std::memset(large.data, 0xA5, 300 * 128);
  ASSERT_NE(large.data, small.data);
  const auto* bytes = static_cast<const unsigned char*>(small.data);
  EXPECT_TRUE(std::all_of(bytes, bytes + 256, [](unsigned char b) { return b == 0x5A; }));
  EXPECT_EQ(frame.get(kValue).data, large.data);
  frame.drop_outgrown();
  EXPECT_EQ(frame.make(kValue, AS_BF16, {300, 64}).data, large.data);
}

}  // namespace
}  // namespace attnscope
