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
