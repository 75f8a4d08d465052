// The comparator: element rule, anomalies, masks, sets.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "engine/trace/compare.h"
#include "engine/trace/recheck.h"
#include "engine/trace/tolerances.h"
#include "kernels/cpu/codec.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace trace_compare_test {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Tolerance elements(double abs, double rel) {
  Tolerance t;
  t.abs = abs;
  t.rel = rel;
  return t;
}

Comparison compare_f64(std::vector<double> a, std::vector<double> b, const Tolerance& tolerance) {
  const auto n = static_cast<std::int64_t>(a.size());
  return compare(make_tensor(a.data(), {1, n}), make_tensor(b.data(), {1, n}), {}, tolerance);
}

TEST(Compare, AnElementPassesByAbsOrRel) {
  // 0.001 off: abs 0.002 passes near zero, rel 1e-3 passes at 100.
  EXPECT_TRUE(compare_f64({0.001}, {0.0}, elements(0.002, 1e-3)).within);
  EXPECT_TRUE(compare_f64({100.05}, {100.0}, elements(0.002, 1e-3)).within);
  EXPECT_FALSE(compare_f64({1.05}, {1.0}, elements(0.002, 1e-3)).within);
}

TEST(Compare, EveryElementMustPassAndTheWorstIsNamed) {
  const Comparison c = compare_f64({1, 2, 3.5, 4}, {1, 2, 3, 4.001}, elements(0.01, 0));
  EXPECT_FALSE(c.within);
  EXPECT_EQ(c.worst.index, (std::vector<std::int64_t>{0, 2}));
  EXPECT_DOUBLE_EQ(c.worst.value, 3.5);
  EXPECT_DOUBLE_EQ(c.worst.reference, 3);
  EXPECT_DOUBLE_EQ(c.budget_used, 50);
  EXPECT_EQ(c.figures.differing, 2);
  EXPECT_DOUBLE_EQ(c.figures.max_abs, 0.5);
  EXPECT_EQ(c.elements, 4);
}

TEST(Compare, CosineBoundsTheWholeTap) {
  Tolerance t = elements(1, 0);  // every element passes
  t.cosine = 1e-6;
  const Comparison turned = compare_f64({1, 1.5}, {1, 1}, t);
  EXPECT_FALSE(turned.within);
  EXPECT_NE(turned.note.find("no element is beyond its bound"), std::string::npos) << turned.note;
  EXPECT_NE(turned.note.find("1 - cosine is 0.0476, at most 1e-06"), std::string::npos)
      << turned.note;
  t.cosine = 0.5;
  EXPECT_TRUE(compare_f64({1, 1.5}, {1, 1}, t).within);
  // 1 - 2 sum(ab) / sum(a^2 + b^2) sees scale errors, unlike a plain cosine.
  EXPECT_NEAR(compare_f64({2, 2}, {1, 1}, t).figures.cosine, 0.2, 1e-15);
  EXPECT_EQ(compare_f64({0, 0}, {0, 0}, t).figures.cosine, 0);
}

TEST(Compare, NanAndInfinityMustSitAtTheSamePlaces) {
  const Tolerance loose = elements(1e30, 1);
  EXPECT_TRUE(compare_f64({kNaN, kInf, -kInf}, {kNaN, kInf, -kInf}, loose).within);
  for (const auto& [a, b] : std::vector<std::pair<double, double>>{
           {kNaN, 1}, {1, kNaN}, {kInf, 1}, {1, kInf}, {kInf, -kInf}, {kNaN, kInf}}) {
    const Comparison c = compare_f64({a}, {b}, loose);
    EXPECT_FALSE(c.within) << a << " vs " << b;
    EXPECT_FALSE(c.equal);
    EXPECT_NE(c.note.find("NaN or infinite"), std::string::npos);
  }
}

TEST(Compare, OneBf16StepIsTheFullBudget) {
  Tolerance t;
  t.bf16_ulp = 1;
  const auto one_step = [&](float value, int steps) {
    std::vector<bf16_t> a = {{static_cast<std::uint16_t>(cpu::float_to_bf16(value) + steps)}};
    std::vector<double> b = {static_cast<double>(cpu::round_bf16(value))};
    return compare(make_tensor(a.data(), {1, 1}), make_tensor(b.data(), {1, 1}), {}, t);
  };
  for (float value : {1.0f, 1.5f, 255.0f, 0.0078125f, 3e-39f}) {
    EXPECT_TRUE(one_step(value, 0).equal);
    EXPECT_TRUE(one_step(value, 1).within) << value;
    EXPECT_FALSE(one_step(value, 1).equal) << value;
    EXPECT_FALSE(one_step(value, 2).within) << value;
  }
  EXPECT_TRUE(one_step(1.0f, -1).within);  // half a step of 1.0: the binade below
}

TEST(Compare, Bf16StepsDoNotCountForWiderTaps) {
  Tolerance t;
  t.bf16_ulp = 1;
  t.rel = 1e-5;
  std::vector<float> a = {1.0f + 0x1p-10f}, near = {1.0f + 0x1p-17f};
  std::vector<double> b = {1.0};
  const as_tensor reference = make_tensor(b.data(), {1, 1});
  EXPECT_FALSE(compare(make_tensor(a.data(), {1, 1}), reference, {}, t).within);
  EXPECT_TRUE(compare(make_tensor(near.data(), {1, 1}), reference, {}, t).within);
}

TEST(Compare, EqualMeansTheReferenceRoundedToTheTapsType) {
  std::vector<bf16_t> a = {{0x3F80}};                      // 1.0
  std::vector<double> near = {1.0 + 1e-3}, far = {1.005};  // rounds to 1.0; rounds to 1.0078125
  Tolerance t;
  t.bf16_ulp = 1;
  EXPECT_TRUE(
      compare(make_tensor(a.data(), {1, 1}), make_tensor(near.data(), {1, 1}), {}, t).equal);
  EXPECT_FALSE(
      compare(make_tensor(a.data(), {1, 1}), make_tensor(far.data(), {1, 1}), {}, t).equal);
}

TEST(Compare, RowMaximumScalesTheBoundOfCancellingElements) {
  Tolerance t;
  t.rel = 1e-6;
  t.row_max = 1e-3;
  EXPECT_TRUE(compare_f64({1000, 0.5}, {1000, 0.0}, t).within);
  EXPECT_FALSE(compare_f64({1, 0.5}, {1, 0.0}, t).within);
}

TEST(Compare, ExactClassAcceptsNothingElse) {
  Tolerance t;
  t.exact = true;
  std::vector<std::int32_t> a = {1, 2, -1}, b = {1, 3, -1};
  const Comparison c = compare(make_tensor(a.data(), {1, 3}), make_tensor(b.data(), {1, 3}), {}, t);
  EXPECT_FALSE(c.within);
  EXPECT_EQ(c.note, "1 of 3 elements differ");
  EXPECT_TRUE(compare(make_tensor(a.data(), {1, 3}), make_tensor(a.data(), {1, 3}), {}, t).equal);
}

TEST(Compare, MasksLeaveOutWhatHoldsNoValue) {
  std::vector<double> a = {1, 2, kNaN, kNaN, 5, kNaN}, b = {1, 2, 7, 8, 5, 9};
  const std::vector<std::int64_t> slots = {3, -1, 4};
  const std::vector<std::int32_t> lens = {2, 0, 1};
  const as_tensor ta = make_tensor(a.data(), {3, 2}), tb = make_tensor(b.data(), {3, 2});
  TapMask by_lens;
  by_lens.lens = lens.data();
  EXPECT_TRUE(compare(ta, tb, by_lens, elements(1e-9, 0)).equal);
  EXPECT_EQ(compare(ta, tb, by_lens, elements(1e-9, 0)).elements, 3);
  TapMask by_slots;
  by_slots.slots = slots.data();
  const Comparison c = compare(ta, tb, by_slots, elements(1e-9, 0));
  EXPECT_FALSE(c.within);  // the NaN of row 2
  EXPECT_EQ(c.elements, 4);
}

TEST(Compare, StridedTensorsAreReadByTheirStrides) {
  std::vector<float> a = {1, 9, 2, 9, 3, 9};
  std::vector<double> b = {1, 2, 3};
  as_tensor strided = make_tensor(a.data(), {1, 3});
  strided.stride[1] = 2;
  EXPECT_TRUE(compare(strided, make_tensor(b.data(), {1, 3}), {}, elements(1e-9, 0)).equal);
}

TEST(Compare, ShapesMustAgree) {
  std::vector<double> a = {1, 2}, b = {1, 2};
  const Comparison c =
      compare(make_tensor(a.data(), {1, 2}), make_tensor(b.data(), {2, 1}), {}, elements(1, 1));
  EXPECT_FALSE(c.within);
  EXPECT_NE(c.note.find("shape"), std::string::npos);
}

// ---- selections
// ----------------------------------------------------------------------------------

struct TopK {
  std::vector<std::int32_t> ours, reference;
  std::vector<float> logits;
  std::int32_t len;

  Comparison run(double score_rel = 1e-5) {
    Tolerance t;
    t.top_k = true;
    t.score_rel = score_rel;
    const auto k = static_cast<std::int64_t>(ours.size());
    const auto n = static_cast<std::int64_t>(logits.size());
    return compare_top_k(make_tensor(ours.data(), {1, k}), make_tensor(reference.data(), {1, k}),
                         make_tensor(logits.data(), {1, n}), &len, t);
  }
};

TEST(CompareTopK, OrderDoesNotMatter) {
  TopK t{{4, 1}, {1, 4}, {0, 9, 0, 0, 8}, 5};
  EXPECT_TRUE(t.run().equal);
}

TEST(CompareTopK, SwappedTiesAreNearTies) {
  TopK t{{1, 2}, {1, 4}, {0, 9, 5, 0, 5}, 5};
  const Comparison c = t.run();
  EXPECT_TRUE(c.within);
  EXPECT_TRUE(c.near_tie);
  EXPECT_FALSE(c.equal);
  EXPECT_EQ(c.figures.differing, 1);
}

TEST(CompareTopK, ASwapBeyondTheScoreToleranceIsWrong) {
  TopK t{{1, 2}, {1, 4}, {0, 9, 5, 0, 5.1f}, 5};
  const Comparison c = t.run();
  EXPECT_FALSE(c.within);
  EXPECT_NE(c.note.find("1 of 2 entries differ, margin 0.1"), std::string::npos) << c.note;
  EXPECT_TRUE(t.run(0.1).near_tie);
}

// A kept output that is wrong is not nearly what a right lane puts out.
TEST(CompareTopK, AChoiceThatBeatsTheReferencesIsNoTieEither) {
  TopK t{{1, 4}, {1, 2}, {0, 9, 5, 0, 5.1f}, 5};
  const Comparison c = t.run();
  EXPECT_FALSE(c.within);
  EXPECT_FALSE(c.near_tie);
  EXPECT_NEAR(c.figures.max_abs, 0.1, 1e-6);
  EXPECT_TRUE(t.run(0.1).near_tie);
}

TEST(CompareTopK, MalformedListsAreWrongEvenWithTheRightSet) {
  const std::vector<float> logits = {0, 9, 0, 0, 8};
  struct Case {
    std::vector<std::int32_t> ours, reference;
    std::int32_t len;
    const char* complaint;
  };
  for (const Case& c :
       std::vector<Case>{{{1, 1}, {1, 4}, 5, "selected twice"},
                         {{1, 5}, {1, 4}, 5, "outside 0..4"},
                         {{-1, 1, 4}, {1, 4, 2}, 5, "comes after a -1"},
                         {{1, -1}, {1, 4}, 5, "1 entry selected, 2 visible and wanted"},
                         {{1, 4}, {1, -1}, 5, "2 selected where the other list has 1"},
                         {{1, -7}, {1, 4}, 5, "outside"}}) {
    TopK t{c.ours, c.reference, logits, c.len};
    const Comparison result = t.run(1);
    EXPECT_FALSE(result.within) << c.complaint;
    EXPECT_NE(result.note.find(c.complaint), std::string::npos) << result.note;
  }
  const Comparison hole = TopK{{1, -1, 0, -1}, {0, 1, -1, -1}, {0, 9, 8, 7, 6}, 2}.run(1);
  EXPECT_FALSE(hole.within);
  EXPECT_EQ(hole.worst.index, (std::vector<std::int64_t>{0, 1}));
}

TEST(CompareTopK, AScoreThatIsNotANumberIsNoTie) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  TopK taken{{0, 1}, {1, 2}, {nan, 5, 4, 3}, 4};  // NaN taken in place of 4
  EXPECT_FALSE(taken.run().within);
  TopK lost{{1, 2}, {0, 1}, {inf, 5, 4, 3}, 4};  // +inf left out
  EXPECT_FALSE(lost.run().within);
  TopK both{{0, 1}, {0, 2}, {9, inf, inf, 3}, 4};  // equal infinities tie
  EXPECT_TRUE(both.run().near_tie);
}

TEST(CompareTopK, ShortRowsTakeAllEntries) {
  TopK t{{0, 1, -1}, {0, 1, -1}, {3, 4, 99}, 2};
  EXPECT_TRUE(t.run().equal);
}

TEST(SelectionDrift, SwapsAreExplainedByInheritedScoreDifferences) {
  std::vector<std::int32_t> ours = {0, 2}, theirs = {0, 1};
  std::vector<float> scores = {9, 5, 5.1f};
  std::vector<double> sim = {9, 5.2, 5.1};
  const std::int32_t len = 3;
  const auto run = [&] {
    return selection_drift(make_tensor(ours.data(), {1, 2}), make_tensor(scores.data(), {1, 3}),
                           make_tensor(theirs.data(), {1, 2}), make_tensor(sim.data(), {1, 3}),
                           &len);
  };
  SelectionDrift drift = run();
  EXPECT_EQ(drift.tokens, 1);
  EXPECT_EQ(drift.entries, 1);
  EXPECT_NEAR(drift.margin, 0.1, 1e-12);
}

TEST(Compare, PercentilesUlpsAndTheShareThatPasses) {
  std::vector<float> a(1000), b(1000);
  for (std::size_t i = 0; i < a.size(); ++i) {
    b[i] = 1;
    a[i] = 1 + static_cast<float>(i) * 0x1p-23f;
  }
  Tolerance rule;
  rule.abs = 899.5 * 0x1p-23;
  const Comparison c =
      compare(make_tensor(a.data(), {1000}), make_tensor(b.data(), {1000}), {}, rule);
  EXPECT_EQ(c.figures.max_ulp, 999);
  EXPECT_EQ(c.figures.beyond, 100);
  EXPECT_EQ(c.rows_beyond, 100);
  // From above, by an eighth of an octave at most.
  EXPECT_GE(c.figures.median, 499 * 0x1p-23);
  EXPECT_LE(c.figures.median, 499 * 0x1p-23 * 1.13);
  EXPECT_GE(c.figures.p90, 899 * 0x1p-23);
  EXPECT_LE(c.figures.p90, 899 * 0x1p-23 * 1.13);
  EXPECT_GE(c.figures.p99, 989 * 0x1p-23);
  EXPECT_LE(c.figures.p99, c.figures.max_abs);
}

TEST(Compare, UlpsOfBf16CountItsOwnSteps) {
  // 1 and the next bf16, 0 and the smallest one below it, across the sign.
  std::vector<bf16_t> a = {{0x3f81}, {0x8001}, {0x8002}}, b = {{0x3f80}, {0x0000}, {0x0001}};
  Tolerance rule;
  rule.bf16_ulp = 1;
  const Comparison c = compare(make_tensor(a.data(), {3}), make_tensor(b.data(), {3}), {}, rule);
  EXPECT_EQ(c.figures.max_ulp, 3);
  EXPECT_EQ(c.figures.differing, 3);
}

TEST(Compare, FiguresCountWhatIsNotTheReferenceRounded) {
  constexpr std::int64_t kRows = 16, kColumns = 100;
  std::vector<double> exact(kRows * kColumns);
  std::vector<float> value(exact.size());
  std::int64_t moved = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    exact[i] = std::sin(static_cast<double>(i));
    value[i] = static_cast<float>(exact[i]);
    if (i % 3 != 1) continue;
    value[i] = std::nextafter(value[i], 4.0F);
    ++moved;
  }
  const ErrorFigures figures = measure(make_tensor(value.data(), {kRows, kColumns}),
                                       make_tensor(exact.data(), {kRows, kColumns}), {});
  EXPECT_EQ(figures.differing, moved);
  EXPECT_EQ(figures.max_ulp, 1);
}

TEST(Compare, ErrorAgainstMagnitude) {
  std::vector<float> a = {0.5f, 1.5f, 3.5f, 100.0f, 0.0f}, b = {0.5f, 1.0f, 3.0f, 96.0f, 0.0f};
  const auto bins = error_by_magnitude(make_tensor(a.data(), {5}), make_tensor(b.data(), {5}), {});
  ASSERT_EQ(bins.size(), 5u);
  EXPECT_EQ(bins.back().exponent, 6);
  EXPECT_EQ(bins.back().max_abs, 4);
  EXPECT_EQ(bins[1].exponent, -1);
  EXPECT_EQ(bins[1].max_abs, 0);
  EXPECT_EQ(bins[2].mean_abs, 0.5);
}

TEST(Compare, RowsLeftOutAreNotJudged) {
  std::vector<float> a = {1, 2, 3, 4}, b = {1, 9, 3, 4};
  const std::vector<bool> out = {true, false};
  TapMask mask;
  mask.left_out = &out;
  Tolerance rule;
  rule.exact = true;
  EXPECT_TRUE(
      compare(make_tensor(a.data(), {2, 2}), make_tensor(b.data(), {2, 2}), mask, rule).within);
  EXPECT_FALSE(
      compare(make_tensor(a.data(), {2, 2}), make_tensor(b.data(), {2, 2}), {}, rule).within);
}

// The place that is named is the entry's, not the front of the list.
TEST(CompareTopK, TheWorstElementIsTheEntryThatTheOtherListLacks) {
  const std::vector<std::int32_t> ours = {0, 1, 2, -1, 0, 1, 3, 4},
                                  theirs = {0, 1, 2, 3, 0, 1, 2, 3};
  const std::vector<float> scores = {5, 4, 3, 2, 1, 5, 4, 3, 2, 1};
  const std::vector<std::int32_t> lens = {5, 5};
  Tolerance rule;
  rule.top_k = true;
  rule.score_rel = 1e-3;
  const as_tensor logits = make_tensor(scores.data(), {2, 5});
  const auto one = [&](std::int64_t row) {
    return compare_top_k(make_tensor(ours.data() + row * 4, {1, 4}),
                         make_tensor(theirs.data() + row * 4, {1, 4}), logits, lens.data(), rule)
        .worst;
  };
  EXPECT_EQ(one(0).index, (std::vector<std::int64_t>{0, 3})) << "where 3 is missing";
  EXPECT_EQ(one(0).value, -1);
  EXPECT_EQ(one(0).reference, 3);
  EXPECT_EQ(one(1).index, (std::vector<std::int64_t>{0, 3})) << "where 4 stands";
  EXPECT_EQ(one(1).value, 4);
}

// Parts of a large tap are put together as if it had been walked in one go.
TEST(Compare, LargeTapsDoNotDependOnThreads) {
  constexpr std::int64_t kRows = 700, kColumns = 1024;
  std::vector<float> value(kRows * kColumns);
  std::vector<double> reference(value.size());
  for (std::size_t i = 0; i < value.size(); ++i) {
    reference[i] = static_cast<double>((i * 7919) % 1009) / 64 - 8;
    value[i] = static_cast<float>(reference[i] + ((i % 5 == 0) ? 1e-4 : 0));
  }
  value[300 * kColumns + 5] += 2;
  value[300 * kColumns + 6] += 1;
  value[650 * kColumns] -= 3;
  Tolerance rule;
  rule.abs = 0.5;
  const as_tensor a = make_tensor(value.data(), {kRows, kColumns});
  const as_tensor b = make_tensor(reference.data(), {kRows, kColumns});
  const Comparison one = compare(a, b, {}, rule);
  EXPECT_EQ(one.elements, kRows * kColumns);
  EXPECT_EQ(one.figures.beyond, 3);
  EXPECT_EQ(one.rows_beyond, 2);
  EXPECT_EQ(one.worst.index, (std::vector<std::int64_t>{650, 0}));
  EXPECT_NEAR(one.figures.max_abs, 3, 1e-3);
  for (const int n : {2, 3, 7}) {
    cpu::ThreadPool pool(n);
    const Comparison many = compare(a, b, {}, rule, pool.handle());
    EXPECT_EQ(many.elements, one.elements);
    EXPECT_EQ(many.rows_beyond, one.rows_beyond);
    EXPECT_EQ(many.worst.index, one.worst.index);
    EXPECT_EQ(many.budget_used, one.budget_used);
    EXPECT_EQ(many.figures.differing, one.figures.differing);
    EXPECT_EQ(many.figures.cosine, one.figures.cosine);
    EXPECT_EQ(many.figures.p90, one.figures.p90);
    EXPECT_EQ(many.figures.max_ulp, one.figures.max_ulp);
  }
}

// The plain look at some elements says what compare() says of all.
TEST(Recheck, PassesWhatIsWithinAndNamesWhatIsNot) {
  const auto looked = [](std::vector<double> a, std::vector<double> b, const Tolerance& t) {
    const auto n = static_cast<std::int64_t>(a.size());
    return passed_over(make_tensor(a.data(), {1, n}), make_tensor(b.data(), {1, n}), {}, t);
  };
  EXPECT_EQ(looked({0.001, 100.05, kNaN, kInf}, {0, 100, kNaN, kInf}, elements(0.002, 1e-3)), "");
  const std::string found = looked({1, 1.05}, {1, 1}, elements(0.002, 1e-3));
  EXPECT_NE(found.find("element [0,1], which is 1.05 and should be 1"), std::string::npos) << found;
  EXPECT_NE(looked({1, kNaN}, {1, 1}, elements(1, 1)), "");
  EXPECT_NE(looked({1, kInf}, {1, 1}, elements(1, 1)), "");
  Tolerance exact, row;
  exact.exact = true;
  row.row_max = 0.01;
  EXPECT_NE(looked({1, 2}, {1, 3}, exact), "");
  EXPECT_EQ(looked({100, 0.9}, {100, 0}, row), "");
  EXPECT_NE(looked({100, 1.1}, {100, 0}, row), "");
}

TEST(Recheck, LooksAtTheMiddleAndTheEndByStridesAndMasks) {
  std::vector<float> a(5 * 8, 1.0f);
  const std::vector<float> b = a;
  as_tensor value = make_tensor(a.data(), {5, 4}), reference = make_tensor(b.data(), {5, 4});
  value.stride[0] = reference.stride[0] = 8;
  for (const std::size_t place : {0u, 2u, 4u}) {
    a[place * 8 + 3] = 2;
    EXPECT_NE(passed_over(value, reference, {}, elements(0.1, 0)), "") << place;
    std::int32_t lens[5] = {4, 4, 4, 4, 4};
    lens[place] = 3;
    TapMask mask;
    mask.lens = lens;
    EXPECT_EQ(passed_over(value, reference, mask, elements(0.1, 0)), "") << place;
    std::int64_t slots[5] = {0, 1, 2, 3, 4};
    slots[place] = -1;
    TapMask written;
    written.slots = slots;
    EXPECT_EQ(passed_over(value, reference, written, elements(0.1, 0)), "") << place;
    a[place * 8 + 3] = 1;
  }
}

TEST(Recheck, RoundsToBf16AsTheComparisonDoes) {
  Tolerance one_step;
  one_step.bf16_ulp = 1;
  for (const double v : {1.0039, -3.3, 0x1p-130, 65504.0, 1e-3}) {
    const float rounded = cpu::round_bf16(v);
    std::uint16_t bits = cpu::float_to_bf16(rounded);
    for (const int off : {0, 1, 2}) {
      const auto moved = static_cast<std::uint16_t>(bits + off);
      const as_tensor value = make_tensor(reinterpret_cast<const bf16_t*>(&moved), {1, 1});
      const as_tensor reference = make_tensor(&v, {1, 1});
      const bool within = compare(value, reference, {}, one_step).within;
      EXPECT_EQ(passed_over(value, reference, {}, one_step).empty(), within) << v << " " << off;
    }
  }
}

}  // namespace trace_compare_test
}  // namespace attnscope
