// The tolerance file: what is read, what is refused, that every tap of the op table has a rule.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <string_view>
#include <vector>

#include "engine/session/step/op_params.h"
#include "engine/trace/compare.h"
#include "engine/trace/tolerances.h"
#include "kernels/params/op_table.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace trace_tolerances_test {

std::string file(const std::string& classes, const std::string& rest = "") {
  return R"({"version": 1, "classes": {)" + classes + R"(}, "exceptions": [)" + rest +
         R"(], "free_running": {"cosine": 1e-3, "reason": "measured"}})";
}

std::string error_of(const std::string& text) {
  const auto result = Tolerances::parse(text, "t.json");
  return result ? "accepted" : result.error().text();
}

TEST(Tolerances, TheShippedFileCoversEveryOutputTap) {
  const auto tolerances =
      Tolerances::load(std::string(ATTNSCOPE_SOURCE_DIR) + "/assets/tolerances.json");
  ASSERT_TRUE(tolerances) << tolerances.error().text();
  int taps = 0;
  for (int id = 0; id < AS_OP_COUNT; ++id) {
    const as_op_info& op = *as_op_find(id);
    for (std::uint32_t i = 0; i < op.num_taps; ++i) {
      if (op.taps[i].direction != AS_TAP_OUT) continue;
      ++taps;
      const auto rule = tolerances->find(op.id, op.taps[i].name, "cpu", op.taps[i].rule);
      ASSERT_TRUE(rule) << rule.error().text();
      EXPECT_FALSE(rule->reason.empty()) << rule->name;
    }
  }
  EXPECT_GT(taps, 40);
  EXPECT_GT(tolerances->drift_limit(), 0);
  EXPECT_GT(tolerances->drift_reason().size(), 40u);
}

float in_bf16(double x) {
  auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(x));
  bits += 0x7FFF + ((bits >> 16) & 1);
  return std::bit_cast<float>(bits & 0xFFFF0000U);
}

// Attention over drawn logits and values of size 3: exact, with weights rounded to bf16 as public
// kernels have them, and with an entry of each list left out.
struct Attended {
  std::vector<double> exact;
  std::vector<float> rounded, one_less;
};
Attended attend(int rows, int entries, int dims) {
  Attended out;
  std::mt19937 draw(7);
  std::normal_distribution<double> normal(0, 3);
  for (int row = 0; row < rows; ++row) {
    std::vector<double> logit(static_cast<std::size_t>(entries));
    for (double& l : logit) l = normal(draw);
    const double top = *std::max_element(logit.begin(), logit.end());
    const auto left_out = static_cast<std::size_t>(row % entries);
    logit[left_out] = top - 3;
    const auto width = static_cast<std::size_t>(dims);
    std::vector<double> sum(width), sum_rounded(width), sum_less(width);
    double total = 0;
    for (std::size_t i = 0; i < logit.size(); ++i) {
      const double weight = std::exp(logit[i] - top);
      total += weight;
      for (std::size_t d = 0; d < width; ++d) {
        const double value = normal(draw);
        sum[d] += weight * value;
        sum_rounded[d] += in_bf16(weight) * value;
        sum_less[d] += i == left_out ? 0 : weight * value;
      }
    }
    for (std::size_t d = 0; d < width; ++d) {
      out.exact.push_back(sum[d] / total);
      out.rounded.push_back(in_bf16(sum_rounded[d] / total));
      out.one_less.push_back(in_bf16(sum_less[d] / (total - std::exp(-3.0))));
    }
  }
  return out;
}

TEST(Tolerances, AttentionWithWeightsInBf16IsRight) {
  const auto tolerances =
      Tolerances::load(std::string(ATTNSCOPE_SOURCE_DIR) + "/assets/tolerances.json");
  ASSERT_TRUE(tolerances) << tolerances.error().text();
  const auto rule = tolerances->find(AS_OP_SPARSE_ATTENTION, "o", "mine", "attention");
  ASSERT_TRUE(rule) << rule.error().text();
  Attended made = attend(200, 98, 512);
  const auto held = [&](std::vector<float>& o, const Tolerance& tolerance) {
    return compare(make_tensor(o.data(), {200, 512}), make_tensor(made.exact.data(), {200, 512}),
                   TapMask{}, tolerance);
  };
  EXPECT_TRUE(held(made.rounded, *rule).within) << held(made.rounded, *rule).budget_used;
  EXPECT_EQ(held(made.one_less, *rule).rows_beyond, 200);
  // What published tests allow is made for values of size 0.1.
  Tolerance published = *rule;
  published.row_max = 0;
  EXPECT_GT(held(made.rounded, published).budget_used, 2);
}

double in_e4m3(double x) {  // the mantissa alone
  int exponent = 0;
  const double mantissa = std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(mantissa * 16), exponent - 4);
}

// A sum as tensor cores of Hopper make it: of 32 products and what there is, all cut off 13 bits
// below the largest.
double sum_of_codes(const std::vector<double>& products) {
  double sum = 0;
  for (std::size_t first = 0; first < products.size(); first += 32) {
    double largest = std::fabs(sum);
    for (std::size_t d = first; d < first + 32; ++d) {
      largest = std::max(largest, std::fabs(products[d]));
    }
    const double unit = largest > 0 ? std::ldexp(1.0, std::ilogb(largest) - 13) : 1;
    sum = std::trunc(sum / unit);
    for (std::size_t d = first; d < first + 32; ++d) sum += std::trunc(products[d] / unit);
    sum *= unit;
  }
  return sum;
}

TEST(Tolerances, ScoresOfCodesHaveAClassOfTheirOwn) {
  OpParams params;
  auto& p = params.init<as_indexer_logits_params>(AS_OP_INDEXER_LOGITS);
  const as_tap_info* const tap =
      std::find_if(params.info().taps, params.info().taps + params.info().num_taps,
                   [](const as_tap_info& t) { return std::string_view(t.name) == "logits"; });
  p.cache.record = AS_RECORD_INDEX_FP8;
  EXPECT_STREQ(tolerance_class(params, *tap), "scores");
  p.weights.reserved = AS_SCORES_BF16;
  EXPECT_STREQ(tolerance_class(params, *tap), "scores");
  p.weights.reserved = AS_SCORES_E4M3;
  EXPECT_STREQ(tolerance_class(params, *tap), "scores_e4m3");
  p.cache.record = AS_RECORD_INDEX_MXFP4;
  EXPECT_STREQ(tolerance_class(params, *tap), "scores");

  const auto tolerances =
      Tolerances::load(std::string(ATTNSCOPE_SOURCE_DIR) + "/assets/tolerances.json");
  ASSERT_TRUE(tolerances) << tolerances.error().text();
  const auto rule = tolerances->find(AS_OP_INDEXER_LOGITS, "logits", "mine", "scores_e4m3");
  const auto narrow = tolerances->find(AS_OP_INDEXER_LOGITS, "logits", "mine", "scores");
  ASSERT_TRUE(rule && narrow);
  constexpr int kRows = 30, kEntries = 64, kHeads = 64, kDims = 128;
  std::mt19937 draw(11);
  std::normal_distribution<double> normal(0, 1);
  std::vector<double> exact;
  std::vector<float> codes, one_head_less;
  std::vector<double> products(kDims);
  for (int row = 0; row < kRows; ++row) {
    std::vector<double> query(kHeads * kDims), weight(kHeads);
    for (double& q : query) q = in_e4m3(normal(draw));
    for (double& w : weight) w = normal(draw) / kHeads;
    for (int entry = 0; entry < kEntries; ++entry) {
      std::vector<double> key(kDims);
      for (double& k : key) k = in_e4m3(normal(draw));
      double score = 0, of_codes = 0, first = 0;
      for (std::size_t j = 0; j < kHeads; ++j) {
        double dot = 0;
        for (std::size_t d = 0; d < kDims; ++d) {
          products[d] = query[j * kDims + d] * key[d];
          dot += products[d];
        }
        score += weight[j] * std::max(dot, 0.0);
        of_codes += weight[j] * std::max(sum_of_codes(products), 0.0);
        if (j == 0) first = score;
      }
      exact.push_back(score);
      codes.push_back(static_cast<float>(of_codes));
      one_head_less.push_back(static_cast<float>(score - first));
    }
  }
  const auto held = [&](std::vector<float>& scores, const Tolerance& tolerance) {
    return compare(make_tensor(scores.data(), {kRows, kEntries}),
                   make_tensor(exact.data(), {kRows, kEntries}), TapMask{}, tolerance);
  };
  EXPECT_TRUE(held(codes, *rule).within) << held(codes, *rule).budget_used;
  EXPECT_EQ(held(codes, *narrow).rows_beyond, kRows);
  EXPECT_GT(held(one_head_less, *rule).rows_beyond, kRows - 3);
}

TEST(Tolerances, ATapWithoutARuleIsAnError) {
  const auto tolerances = Tolerances::parse(file(R"("a": {"abs": 1, "reason": "r"})"), "t.json");
  ASSERT_TRUE(tolerances);
  EXPECT_TRUE(tolerances->find(AS_OP_WO_B, "y", "cpu", "a"));
  const auto missing = tolerances->find(AS_OP_WO_B, "y", "cpu", "dense");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, AS_BAD_INPUT);
  EXPECT_NE(missing.error().text().find("no class \"dense\" for tap y of op wo_b"),
            std::string::npos);
}

TEST(Tolerances, ExceptionsMatchOpTapAndLane) {
  const auto tolerances =
      Tolerances::parse(file(R"("a": {"abs": 1, "reason": "r"})",
                             R"({"op": "wo_b", "lane": "cuda", "abs": 2, "reason": "split sums"})"),
                        "t.json");
  ASSERT_TRUE(tolerances) << tolerances.error().text();
  EXPECT_EQ(tolerances->find(AS_OP_WO_B, "y", "cuda", "a")->abs, 2);
  EXPECT_EQ(tolerances->find(AS_OP_WO_B, "y", "cpu", "a")->abs, 1);
  EXPECT_EQ(tolerances->find(AS_OP_WO_A, "y", "cuda", "a")->abs, 1);
}

TEST(Tolerances, ExceptionsMatchADtype) {
  const auto tolerances =
      Tolerances::parse(file(R"("a": {"abs": 1, "reason": "r"})",
                             R"({"dtype": "f32", "abs": 2, "reason": "wide sums"})"),
                        "t.json");
  ASSERT_TRUE(tolerances) << tolerances.error().text();
  EXPECT_EQ(tolerances->find(AS_OP_WO_B, "y", "cpu", "a", "f32")->abs, 2);
  EXPECT_EQ(tolerances->find(AS_OP_WO_B, "y", "cpu", "a", "bf16")->abs, 1);
}

TEST(Tolerances, ExceptionsMatchAClass) {
  const auto t =
      Tolerances::parse(file(R"("a": {"abs": 1, "reason": "r"}, "b": {"abs": 2, "reason": "r"})",
                             R"({"class": "b", "lane": "cuda", "abs": 3, "reason": "r"})"),
                        "t.json");
  ASSERT_TRUE(t) << t.error().text();
  EXPECT_EQ(t->find(AS_OP_WO_B, "y", "cuda", "b", "bf16")->abs, 3);
  EXPECT_EQ(t->find(AS_OP_WO_B, "y", "cuda", "a", "bf16")->abs, 1);
  EXPECT_EQ(t->find(AS_OP_WO_B, "y", "cpu", "b", "bf16")->abs, 2);
}

TEST(Tolerances, ALoosenedBoundNeedsAReason) {
  const std::string fine = R"("a": {"abs": 1, "reason": "r"})";
  EXPECT_NE(error_of(file(fine, R"({"op": "wo_b", "abs": 9})")).find("exceptions[0].reason"),
            std::string::npos);
  EXPECT_NE(error_of(file(fine, R"({"op": "wo_b", "abs": 9, "reason": "  "})")).find("is empty"),
            std::string::npos);
  EXPECT_NE(error_of(file(fine, R"({"abs": 9, "reason": "all"})")).find("for everything"),
            std::string::npos);
  EXPECT_NE(error_of(file(fine, R"({"dtype": "fp16", "abs": 9, "reason": "r"})")).find("dtype"),
            std::string::npos);
}

TEST(Tolerances, BadFilesNamePlaceAndExpectation) {
  EXPECT_NE(error_of("{").find("t.json"), std::string::npos);
  EXPECT_NE(error_of(file(R"("a": {"abs": 1})")).find("classes.a.reason"), std::string::npos);
  EXPECT_NE(error_of(file(R"("a": {"reason": "r"})")).find("no bound"), std::string::npos);
  EXPECT_NE(error_of(file(R"("a": {"abs": -1, "reason": "r"})")).find("classes.a.abs"),
            std::string::npos);
  EXPECT_NE(error_of(file(R"("a": {"abs": 1, "absolute": 1, "reason": "r"})")).find("absolute"),
            std::string::npos);
  EXPECT_NE(error_of(file(R"("a": {"kind": "top_k", "reason": "r"})")).find("score_rel"),
            std::string::npos);
  EXPECT_NE(error_of(file("", R"({"op": "wo_c", "abs": 1, "reason": "r"})")).find("wo_c"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"version": 2})").find("version"), std::string::npos);
}

}  // namespace trace_tolerances_test
}  // namespace attnscope
