// Selections of two runs: which other entries are a near-tie, whichever of the two is the wrong
// one.
#include "engine/capture/row_match.h"

#include <gtest/gtest.h>

#include "tests/unit/app/trace_builder.h"

namespace attnscope {
namespace row_match_test {

// One token with four visible entries; no scores: they were not recorded.
StepTrace selected(const std::vector<float>& scores, const std::vector<std::int32_t>& entries) {
  StepTrace step = make_step(3, 16, 1);
  OpTrace& op = add_op(step, 1, AS_OP_INDEXER_TOPK);
  if (!scores.empty()) add_tap(op, "logits", scores, 1);
  add_tap<std::int32_t>(op, "lens", {4}, 1);
  add_tap(op, "indices", entries, 1);
  op.taps.back().output = true;
  op.taps.back().rule = "topk";
  return step;
}

TapDiff compared(const StepTrace& a, const StepTrace& b) {
  setenv("ATTNSCOPE_ASSETS", ATTNSCOPE_SOURCE_DIR "/assets", 1);
  const auto tolerances = Tolerances::load();
  SessionInfo info;
  info.request_names = {"one"};
  const RowMatch match{&a, &b, {{0, 0}}};
  const OpTrace &x = *a.ops[0], &y = *b.ops[0];
  const auto out =
      compare_taps(match, info, info, x, y, *x.tap("indices"), *y.tap("indices"), *tolerances);
  EXPECT_TRUE(out);
  return *out;
}

const std::vector<float> kScores = {4, 3, 3, 1};

// Two tokens with two groups of three heads of four dims; one element of each is another.
TEST(RowMatch, TheWorstElementIsSaidByItsAxes) {
  setenv("ATTNSCOPE_ASSETS", ATTNSCOPE_SOURCE_DIR "/assets", 1);
  const auto tolerances = Tolerances::load();
  SessionInfo info;
  info.request_names = {"one"};
  const auto step = [](float at_last, const char* axes, std::initializer_list<std::int64_t> shape) {
    StepTrace out = make_step(3, 16, 2);
    std::vector<float> values(48, 1);
    values[41] = at_last;
    OpTrace& op = add_op(out, 1, AS_OP_WO_A);
    add_tap(op, "y", values, 2);
    TapCopy& tap = op.taps.back();
    tap.axes = axes;
    tap.value = make_tensor(reinterpret_cast<float*>(tap.value_bytes.data()), shape);
    tap.rule = "dense";
    tap.output = true;
    return out;
  };
  const auto said = [&](const char* axes, std::initializer_list<std::int64_t> shape) {
    const StepTrace a = step(1, axes, shape), b = step(9, axes, shape);
    const RowMatch match{&a, &b, {{0, 0}, {1, 1}}};
    const auto out = compare_taps(match, info, info, *a.ops[0], *b.ops[0], *a.ops[0]->tap("y"),
                                  *b.ops[0]->tap("y"), *tolerances);
    return out ? out->evidence : std::string();
  };
  EXPECT_EQ(said("T,H,D", {2, 6, 4}).rfind("request \"one\", token 15, head 4, dim 1: 1 and 9", 0),
            0)
      << said("T,H,D", {2, 6, 4});
  EXPECT_EQ(
      said("S,T,W", {3, 2, 8}).rfind("request \"one\", token 15, window group 2, place 1: ", 0), 0)
      << said("S,T,W", {3, 2, 8});
  EXPECT_EQ(said("R,C", {6, 8}).rfind("request row 5, column 1: 1 and 9", 0), 0)
      << said("R,C", {6, 8});
}

TEST(RowMatch, TheOrderOfASelectionDoesNotMatter) {
  EXPECT_TRUE(compared(selected(kScores, {0, 1}), selected(kScores, {1, 0})).equal);
}

// Another top-k: the wider list is not cut to the other's width.
TEST(RowMatch, SelectionsOfAnotherWidthAreComparedWhole) {
  const StepTrace narrow = selected(kScores, {0, 1});
  EXPECT_TRUE(compared(narrow, selected(kScores, {1, 0, -1, -1})).equal);
  const TapDiff diff = compared(narrow, selected(kScores, {0, 1, 2, -1}));
  EXPECT_FALSE(diff.equal);
  EXPECT_FALSE(diff.within);
  EXPECT_NE(diff.evidence.find("2 entries in the first, 3 in the second"), std::string::npos)
      << diff.evidence;
}

TEST(RowMatch, EntriesOfTheSameScoreAreANearTie) {
  const TapDiff diff = compared(selected(kScores, {0, 1}), selected(kScores, {0, 2}));
  EXPECT_FALSE(diff.equal);
  EXPECT_TRUE(diff.near_tie);
  EXPECT_TRUE(diff.within);
  EXPECT_NE(diff.evidence.find("a near-tie"), std::string::npos);
}

TEST(RowMatch, AWorseEntryIsNoneInEitherRun) {
  for (const bool first : {true, false}) {
    const StepTrace right = selected(kScores, {0, 1}), wrong = selected(kScores, {0, 3});
    const TapDiff diff = first ? compared(wrong, right) : compared(right, wrong);
    EXPECT_FALSE(diff.near_tie) << first;
    EXPECT_FALSE(diff.within) << first;
    EXPECT_NE(diff.evidence.find("margin 2, no near-tie"), std::string::npos) << diff.evidence;
  }
}

TEST(RowMatch, ScoresThatDifferMayTradeEntriesThatFarApart) {
  const std::vector<float> other = {4, 3.0f, 3.05f, 1};
  const StepTrace a = selected({4, 3.05f, 3.0f, 1}, {0, 1});
  EXPECT_TRUE(compared(a, selected(other, {0, 2})).near_tie);
  EXPECT_FALSE(compared(a, selected(other, {0, 3})).near_tie);
}

TEST(RowMatch, AShorterListIsNoNearTie) {
  EXPECT_FALSE(compared(selected(kScores, {0, 1}), selected(kScores, {0, -1})).within);
}

TEST(RowMatch, WithoutScoresNothingIsANearTie) {
  const TapDiff diff = compared(selected({}, {0, 1}), selected({}, {0, 2}));
  EXPECT_FALSE(diff.within);
  EXPECT_NE(diff.evidence.find("scores not recorded"), std::string::npos);
}

}  // namespace row_match_test
}  // namespace attnscope
