// Words that agree with a number.
#include "engine/io/plural.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

namespace attnscope {
namespace plural_test {

TEST(Plural, OneIsSingularAllElseIsNot) {
  EXPECT_STREQ(agree(1, "is", "are"), "is");
  for (const std::int64_t n : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{2}, INT64_MIN}) {
    EXPECT_STREQ(agree(n, "is", "are"), "are") << n;
  }
  EXPECT_EQ(counted(std::size_t{1}, "block", "blocks"), "1 block");
  EXPECT_EQ(counted(std::int16_t{2104}, "token is", "tokens are"), "2104 tokens are");
  EXPECT_EQ(counted(0, "step", "steps"), "0 steps");
}

}  // namespace plural_test
}  // namespace attnscope
