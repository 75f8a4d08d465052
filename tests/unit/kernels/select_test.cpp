// indexer_topk and sample: ties, NaN, short rows.
#include <algorithm>
#include <limits>
#include <numeric>

#include "tests/unit/kernels/support.h"

namespace attnscope::kernel_tests {
namespace select_test {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<std::int32_t> top(std::vector<float> scores, std::int32_t len, std::int64_t k) {
  const auto n = static_cast<std::int64_t>(scores.size());
  Array<float> logits({1, n}, std::move(scores));
  Array<std::int32_t> lens({1}, len), indices({1, k}, 99);
  auto p = make_params<as_indexer_topk_params>();
  p.logits = logits.tensor;
  p.lens = lens.tensor;
  p.indices = indices.tensor;
  EXPECT_OK(run(AS_OP_INDEXER_TOPK, p));
  return indices.values;
}

using List = std::vector<std::int32_t>;

TEST(IndexerTopk, SmallCases) {
  EXPECT_EQ(top({3, 1, 2, 5}, 4, 2), (List{0, 3}));
  EXPECT_EQ(top({3, 1, 2, 5}, 3, 2), (List{0, 2}));    // the row ends before 5
  EXPECT_EQ(top({3, 1}, 2, 4), (List{0, 1, -1, -1}));  // fewer than k
  EXPECT_EQ(top({3, 1}, 0, 2), (List{-1, -1}));
  EXPECT_EQ(top({1, 2, 2, 2, 0}, 5, 2), (List{1, 2}));      // lowest of equal ones
  EXPECT_EQ(top({0.0f, -0.0f, 0.0f}, 3, 2), (List{0, 1}));  // -0 equals 0
  EXPECT_EQ(top({-0.0f, 0.0f, -0.0f}, 3, 2), (List{0, 1}));
  EXPECT_EQ(top({kNan, 1, kNan, -kInf}, 4, 2), (List{1, 3}));  // NaN below -inf
  EXPECT_EQ(top({kNan, 1, -kNan, -kInf}, 4, 3), (List{0, 1, 3}));
  EXPECT_EQ(top({-1, -kInf, kInf, -2}, 4, 2), (List{0, 2}));
  EXPECT_EQ(top({kNan, kNan, kNan}, 3, 2), (List{0, 1}));
}

TEST(IndexerTopk, MatchesSortingOverSizes) {
  Random random(3);
  for (std::int64_t n : {1, 2, 511, 512, 513, 600, 5000}) {
    for (std::int64_t k : {1, 7, 512}) {
      std::vector<float> scores(static_cast<std::size_t>(n));
      // Few distinct values, so that there are many ties.
      for (float& s : scores) s = std::round(normal(random) * 20.0f);
      List order(static_cast<std::size_t>(n));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
      });
      order.resize(static_cast<std::size_t>(std::min(n, k)));
      std::sort(order.begin(), order.end());
      order.resize(static_cast<std::size_t>(k), -1);
      EXPECT_EQ(top(scores, static_cast<std::int32_t>(n), k), order) << n << " " << k;
    }
  }
}

// Rows that are cut down to what reaches a bound first: in every order, with better scores behind
// the row's end and where nearly all is NaN or equal.
TEST(IndexerTopk, LongRowsAreCutDownToNothingThatIsWanted) {
  Random random(4);
  for (std::int64_t n : {2047, 2048, 2049, 2063, 4111, 20000}) {
    for (int kind = 0; kind < 6; ++kind) {
      std::vector<float> scores(static_cast<std::size_t>(n + 40), 1e30f);
      for (std::int64_t i = 0; i < n; ++i) {
        const float value = normal(random), place = static_cast<float>(i);
        const float kinds[] = {
            value, place, -place, i % 97 == 5 ? value : kNan, 3.0f, i % 16 == 3 ? value : -kInf};
        scores[static_cast<std::size_t>(i)] = kinds[kind];
      }
      const auto better = [&](std::int32_t a, std::int32_t b) {
        const float x = scores[static_cast<std::size_t>(a)],
                    y = scores[static_cast<std::size_t>(b)];
        return std::isnan(y) ? !std::isnan(x) : x > y;
      };
      for (std::int64_t k : {1, 512, 1024}) {
        List order(static_cast<std::size_t>(n));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), better);
        order.resize(static_cast<std::size_t>(std::min(n, k)));
        std::sort(order.begin(), order.end());
        EXPECT_EQ(top(scores, static_cast<std::int32_t>(n), k), order)
            << n << " " << k << " " << kind;
      }
    }
  }
}

TEST(Sample, LowestIdOfTheBestWinsAndNanNever) {
  Array<float> logits(
      {4, 4}, {1, 3, 3, 2, kNan, -kInf, -5, -5, kNan, kNan, kNan, kNan, -kInf, -kInf, kNan, -kInf});
  Array<std::int32_t> tokens({4}, 99);
  auto p = make_params<as_sample_params>();
  p.logits = logits.tensor;
  p.tokens = tokens.tensor;
  EXPECT_OK(run(AS_OP_SAMPLE, p));
  EXPECT_EQ(tokens.values, (List{1, 2, -1, 0}));
}

}  // namespace select_test
}  // namespace attnscope::kernel_tests
