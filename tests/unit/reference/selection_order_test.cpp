// The order of scores behind selections: one of any scores, NaN among them.
#include "reference/torch/selection_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

namespace attnscope::reference {
namespace selection_order_test {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(SelectionOrder, PutsNaNBehindAllAndTheLowerEntryFirst) {
  const std::vector<float> scores = {1, kNaN, 3, -kInfinity, 3, kNaN, kInfinity, -0.0f, 0.0f};
  std::vector<int> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int a, int b) { return selected_before(scores.data(), a, b); });
  EXPECT_EQ(order, (std::vector<int>{6, 2, 4, 0, 7, 8, 3, 1, 5}));
}

// Of two entries one goes before the other, and of three no ring: what algorithms rely on.
TEST(SelectionOrder, OrdersWhateverTheScoresAre) {
  const std::vector<float> scores = {kNaN, 2, kNaN, 2, -kInfinity, kInfinity, 0};
  const auto n = static_cast<int>(scores.size());
  const auto before = [&](int a, int b) { return selected_before(scores.data(), a, b); };
  for (int a = 0; a < n; ++a) {
    for (int b = 0; b < n; ++b) {
      EXPECT_EQ(before(a, b) + before(b, a), a == b ? 0 : 1) << a << ' ' << b;
      for (int c = 0; c < n; ++c) {
        EXPECT_TRUE(before(a, c) || !before(a, b) || !before(b, c)) << a << b << c;
      }
    }
  }
}

}  // namespace selection_order_test
}  // namespace attnscope::reference
