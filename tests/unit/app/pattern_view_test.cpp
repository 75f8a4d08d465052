// The pattern of a wrong tap in a trace that keeps some of its rows.
#include "app/views/pattern_view.h"

#include <gtest/gtest.h>

#include "kernels/params/op_table.h"
#include "tests/unit/app/trace_builder.h"

namespace attnscope {
namespace pattern_view_test {

// Attention's LSE [T,H] of 4 tokens and 2 heads, tokens at positions 6 to 9.
struct Lse {
  explicit Lse(const std::vector<float>& values, Verdict verdict = Verdict::kWrong) {
    step = make_step(3, 10, 4);
    OpTrace& op = add_op(step, 0, AS_OP_SPARSE_ATTENTION);
    add_tap(op, "lse", values, 4);
    op.taps.back().axes = "T,H";
    op.taps.back().rule = "lse";
    add_reference(op, std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8}, 4);
    result.op = AS_OP_SPARSE_ATTENTION;
    result.tap = "lse";
    result.dtype = "f32";
    result.verdict = verdict;
  }
  std::vector<ErrorFinding> findings() const { return pattern_of(step, *step.ops[0], result, 64); }

  StepTrace step;
  TapResult result;
};

TEST(PatternView, SaysWhatAndWhere) {
  const float f = 1.442695f;
  const auto findings = Lse({1, 2, 3, 4, 5 * f, 6 * f, 7 * f, 8 * f}).findings();
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].kind, "ratio");
  EXPECT_NE(findings[0].sentence.find("log2(e)"), std::string::npos) << findings[0].sentence;
  EXPECT_EQ(
      findings[1].sentence,
      "4 of 8 elements are wrong: tokens 2 to 3, those at position 8 and behind it; heads all "
      "2");
}

TEST(PatternView, SaysNothingOfWhatIsNotWrongOrNotKept) {
  EXPECT_TRUE(Lse({1, 2, 3, 4, 5, 6, 7, 9}, Verdict::kRounding).findings().empty());
  EXPECT_TRUE(Lse({1, 2, 3, 4, 5, 6, 7, 8}).findings().empty()) << "the wrong row is not kept";
  Lse bare({1, 2, 3, 4, 5, 6, 7, 9});
  bare.result.tap = "o";
  EXPECT_TRUE(bare.findings().empty());
}

}  // namespace pattern_view_test
}  // namespace attnscope
