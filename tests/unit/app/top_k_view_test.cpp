// What the top-k panel says: ranks, threshold, margin, swaps against the reference, steps.
#include "app/views/top_k_view.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/family/models.h"
#include "tests/unit/app/trace_builder.h"

namespace attnscope {
namespace top_k_view_test {

constexpr int kLayer = 1;  // C4A in the tiny model
const float kNan = std::numeric_limits<float>::quiet_NaN();

SessionInfo tiny() {
  SessionInfo info;
  info.config = *preset("tiny");
  info.layout = build_cache_layout(info.config);
  return info;
}

Tolerance tolerance() {
  Tolerance t;
  t.top_k = true;
  t.score_rel = 1e-5;
  return t;
}

// One decode token that sees all of `scores`; ours and theirs are the selections ({} = not run or
// not compared).
StepTrace step_with(std::int64_t number, const std::vector<float>& scores,
                    const std::vector<std::int32_t>& ours,
                    const std::vector<std::int32_t>& theirs = {}) {
  StepTrace step = make_step(number, static_cast<std::int64_t>(scores.size()) * 4 + 1, 1);
  OpTrace& logits = add_op(step, kLayer, AS_OP_INDEXER_LOGITS);
  const std::vector<std::int32_t> len = {static_cast<std::int32_t>(scores.size())};
  const auto lens = [&](OpTrace& op) {
    add_tap(op, "lens", len, 1);
    op.taps.back().value =
        make_tensor(reinterpret_cast<std::int32_t*>(op.taps.back().value_bytes.data()), {1});
  };
  lens(logits);
  add_tap(logits, "logits", scores, 1);
  add_reference(logits, std::vector<double>(scores.begin(), scores.end()), 1);
  if (ours.empty()) return step;
  OpTrace& topk = add_op(step, kLayer, AS_OP_INDEXER_TOPK);
  topk.taps.reserve(3);
  add_tap(topk, "logits", scores, 1);
  lens(topk);
  add_tap(topk, "indices", ours, 1);
  if (!theirs.empty()) add_reference(topk, theirs, 1);
  return step;
}

TopKView view_of(const SessionInfo& info, const StepTrace& step, const StepTrace* before = nullptr,
                 int head = 0) {
  return top_k_view({info, step, before, kLayer, 0, head, tolerance()});
}

TEST(TopKEntry, IsThatOfTheWholeView) {
  const SessionInfo info = tiny();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> scores = {1, 5, nan, 5, -2, 5, nan, 0.5f};
  for (const std::vector<std::int32_t>& ours :
       {std::vector<std::int32_t>{}, std::vector<std::int32_t>{1, 3, 5}}) {
    const StepTrace step = step_with(0, scores, ours);
    const TopKView view = view_of(info, step);
    const TopKInput input{info, step, nullptr, kLayer, 0, 0, tolerance()};
    for (std::int64_t e = 0; e < view.visible; ++e) {
      SCOPED_TRACE(e);
      const auto entry = top_k_entry(input, e);
      ASSERT_TRUE(entry);
      const auto i = static_cast<std::size_t>(e);
      EXPECT_EQ(entry->rank, view.rank[i]);
      EXPECT_EQ(std::isnan(entry->score), std::isnan(view.scores[i]));
      EXPECT_EQ(entry->selected, (view.flags[i] & kInOurs) != 0);
      EXPECT_EQ(entry->chosen, view.chosen);
      EXPECT_EQ(entry->visible, view.visible);
      EXPECT_EQ(entry->k, view.k);
      if (view.chosen) {
        EXPECT_EQ(entry->threshold, view.threshold);
      }
    }
    EXPECT_FALSE(top_k_entry(input, view.visible));
    EXPECT_FALSE(top_k_entry(input, -1));
  }
}

TEST(TopKLayer, IsTheCursorsOwnOrTheNearestOneInWords) {
  SessionInfo info = tiny();  // ratios 0, 4, 128, 4
  info.layout = build_cache_layout(info.config);
  EXPECT_EQ(top_k_layer(info, {0, 3, AS_OP_WO_A}, 9).layer, 3);
  EXPECT_TRUE(top_k_layer(info, {0, 3, AS_OP_WO_A}, 9).note.empty());
  EXPECT_EQ(top_k_layer(info, {0, 0, AS_OP_WO_A}, 9).layer, 1);
  EXPECT_NE(top_k_layer(info, {0, 0, AS_OP_WO_A}, 9).note.find("Layer 0 is SWA"),
            std::string::npos);
  const TopKLayer hca = top_k_layer(info, {0, 2, AS_OP_WO_A}, 2047);
  EXPECT_EQ(hca.layer, 1);
  EXPECT_EQ(hca.note,
            "Layer 2 is C128A: it reads all of its entries (16) and selects none. Shown: layer 1, "
            "the nearest C4A layer.");
  EXPECT_EQ(top_k_layer(info, {0, -1, AS_OP_SLOT_MAPPING}, 9).layer, 1);
  EXPECT_EQ(top_k_layer(info, {0, -1, AS_OP_LM_HEAD}, 9).layer, 3);
}

TEST(TopKLayer, AModelWithoutOneSaysSo) {
  SessionInfo info;
  info.config = *preset("tiny", {0, 2});
  EXPECT_EQ(top_k_layer(info, {0, 0, AS_OP_WO_A}, 9).layer, -1);
  const StepTrace step = make_step(0, 4, 1);
  const TopKView view = top_k_view({info, step, nullptr, -1, 0, 0, tolerance()});
  EXPECT_EQ(top_k_sentence(view), "No layer of this model selects entries.");
}

TEST(TopKView, RanksThresholdAndMargin) {
  const SessionInfo info = tiny();
  const StepTrace step = step_with(7, {0.5f, 2.0f, -1.0f, 2.0f, kNan, 1.5f}, {1, 3, 5}, {1, 3, 5});
  const TopKView view = view_of(info, step);
  EXPECT_EQ(view.order, (std::vector<std::int32_t>{1, 3, 5, 0, 2, 4}));
  EXPECT_EQ(view.rank, (std::vector<std::int32_t>{3, 0, 4, 1, 5, 2}));
  EXPECT_EQ(view.k, 3);
  EXPECT_EQ(view.selected, 3);
  EXPECT_EQ(view.threshold, 1.5);
  EXPECT_EQ(view.at_threshold, 5);
  EXPECT_EQ(view.best_unselected, 0.5);
  EXPECT_EQ(view.runner_up, 0);
  EXPECT_EQ(view.margin, 1.0);
  EXPECT_EQ(view.verdict, Verdict::kEqual);
  EXPECT_TRUE(view.choosing());
  EXPECT_EQ(top_k_sentence(view),
            "3 of 6 entries are selected; the threshold is 1.5, the margin to the best unselected "
            "1.");
}

TEST(TopKView, OverlapWithTheStepBefore) {
  const SessionInfo info = tiny();
  const StepTrace before = step_with(6, {1, 2, 3, 4, 5}, {2, 3, 4});
  const StepTrace step = step_with(7, {1, 9, 3, 4, 5, 6}, {1, 4, 5});
  const TopKView view = view_of(info, step, &before);
  ASSERT_TRUE(view.has_before);
  EXPECT_EQ(view.kept, 1);
  EXPECT_EQ(view.entered, 2);
  EXPECT_EQ(view.left, (std::vector<std::int32_t>{2, 3}));
  EXPECT_NE(top_k_sentence(view).find("; 1 was also selected one step ago."), std::string::npos);
}

TEST(TopKView, SwapsWithinTheScoreToleranceAreNearTies) {
  const SessionInfo info = tiny();
  const float b = std::nextafter(2.0f, 0.0f);
  const StepTrace step = step_with(7, {5, 2.0f, b, 1}, {0, 2}, {0, 1});
  const TopKView view = view_of(info, step);
  EXPECT_EQ(view.verdict, Verdict::kNearTie);
  ASSERT_EQ(view.only_ours.size(), 1u);
  EXPECT_EQ(view.only_ours[0].entry, 2);
  EXPECT_TRUE(view.only_ours[0].near_tie);
  ASSERT_EQ(view.only_reference.size(), 1u);
  EXPECT_EQ(view.only_reference[0].entry, 1);
  EXPECT_DOUBLE_EQ(view.only_reference[0].margin, 2.0 - static_cast<double>(b));
  EXPECT_NEAR(view.score_tolerance, 5e-5, 1e-12);
  EXPECT_EQ(top_k_sentence(view),
            "1 of 2 selected entries differs from the reference; the margins (<= 1.2e-7) are below "
            "the score tolerance: near-ties.");
}

TEST(TopKView, SwapsBeyondTheScoreToleranceAreWrong) {
  const SessionInfo info = tiny();
  const StepTrace step = step_with(7, {5, 2, 1.5f, 1}, {0, 3}, {0, 1});
  const TopKView view = view_of(info, step);
  EXPECT_EQ(view.verdict, Verdict::kWrong);
  EXPECT_FALSE(view.only_ours[0].near_tie);
  EXPECT_EQ(view.only_ours[0].margin, 1);
  EXPECT_LT(view.margin, 0);
  EXPECT_EQ(top_k_sentence(view),
            "1 of 2 selected entries differs from the reference; the margins (<= 1) are above the "
            "score tolerance of 5e-5: wrong.");
}

TEST(TopKView, AListOfTheWrongLengthOrFormIsWrongEvenWithoutAReference) {
  const SessionInfo info = tiny();
  const StepTrace too_short = step_with(7, {5, 2, 3, 1}, {0, 2, -1}, {0, 1, 2});
  const TopKView view = view_of(info, too_short);
  EXPECT_EQ(view.verdict, Verdict::kWrong);
  EXPECT_EQ(
      top_k_sentence(view),
      "2 entries are selected where 3 are wanted; the best entry left out, 1, scores 2: wrong.");
  const StepTrace twice = step_with(7, {5, 2, 3, 1}, {0, 2, 2});
  EXPECT_EQ(view_of(info, twice).verdict, Verdict::kWrong);
  EXPECT_EQ(top_k_sentence(view_of(info, twice)),
            "2 entries are selected where 3 are wanted (entry 2 is selected twice): wrong.");
  const StepTrace outside = step_with(7, {5, 2, 3, 1}, {0, 1, 4});
  EXPECT_EQ(view_of(info, outside).verdict, Verdict::kWrong);
  const StepTrace fine = step_with(7, {5, 2, 3, 1}, {0, 1, 2});
  EXPECT_EQ(view_of(info, fine).verdict, Verdict::kNotCompared);
}

TEST(TopKView, BelowTheLimitThereIsNothingToChoose) {
  const SessionInfo info = tiny();
  const StepTrace step =
      step_with(7, {5, 2, 3}, {0, 1, 2, -1, -1, -1, -1, -1}, {0, 1, 2, -1, -1, -1, -1, -1});
  const TopKView view = view_of(info, step);
  EXPECT_FALSE(view.choosing());
  EXPECT_TRUE(std::isnan(view.margin));
  EXPECT_EQ(top_k_sentence(view),
            "All 3 visible entries are selected: the indexer has nothing to choose; it starts to "
            "choose at token 35.");  // the first to see 9 entries: tokens 0..35
  const StepTrace none = step_with(7, {}, {-1, -1});
  EXPECT_NE(top_k_sentence(view_of(info, none)).find("sees no entry yet"), std::string::npos);
}

TEST(TopKView, SaysWhatHasNotRun) {
  const SessionInfo info = tiny();
  const StepTrace scored = step_with(7, {5, 2, 3}, {});
  EXPECT_EQ(top_k_sentence(view_of(info, scored)),
            "3 entries are scored for token 12; the selection has not run yet.");
  const StepTrace empty = make_step(7, 12, 1);
  EXPECT_EQ(top_k_sentence(view_of(info, empty)),
            "Layer 1 has not scored its entries in step 7 yet.");
  EXPECT_NE(top_k_view({info, scored, nullptr, kLayer, 5, 0, tolerance()}).why_empty, "");
}

TEST(TopKView, WeightsFollowTheListNotTheEntryOrder) {
  const SessionInfo info = tiny();
  StepTrace step = step_with(7, {5, 2, 3, 4}, {0, 2, 3});
  auto attention = std::make_shared<AttentionCopy>();
  attention->heads = 2;
  attention->window = 1;
  attention->extra = 3;
  attention->slots = {8, 100, -1, 103};
  attention->weights = {0.1f, 0.2f, 0.0f, 0.3f, 0.5f, 0.25f, 0.0f, 0.125f};
  add_op(step, kLayer, AS_OP_SPARSE_ATTENTION).attention = attention;
  const TopKView view = view_of(info, step, nullptr, 1);
  EXPECT_EQ(view.weights[0], 0.25f);
  EXPECT_TRUE(std::isnan(view.weights[1]));  // not selected
  EXPECT_TRUE(std::isnan(view.weights[2]));  // selected, but its slot was not read
  EXPECT_EQ(view.weights[3], 0.125f);
  EXPECT_TRUE(view_of(info, step, nullptr, 2).weights.empty());
}

TEST(ReduceScores, KeepsExtremesOfBothSetsAndEverySwap) {
  const SessionInfo info = tiny();
  const StepTrace step = step_with(7, {1, 8, -3, 4, 5, kNan, 7, 2}, {1, 3}, {1, 6});
  const TopKView view = view_of(info, step);
  const auto columns = reduce_scores(view, false, 0, 8, 2);
  ASSERT_EQ(columns.size(), 2u);
  EXPECT_EQ(columns[0].low[0], -3);
  EXPECT_EQ(columns[0].high[0], 1);
  EXPECT_EQ(columns[0].low[1], 4);
  EXPECT_EQ(columns[0].high[1], 8);
  EXPECT_FALSE(columns[0].nan);
  EXPECT_EQ(columns[0].swap, 3);
  EXPECT_TRUE(columns[1].nan);
  EXPECT_GT(columns[1].low[1], columns[1].high[1]);  // none selected
  EXPECT_EQ(columns[1].swap, 6);
  const auto ranked = reduce_scores(view, true, 0, 8, 8);
  EXPECT_EQ(ranked[0].high[1], 8);
  EXPECT_EQ(ranked[1].high[0], 7);
  EXPECT_TRUE(ranked[7].nan);
  // A part of the range, and beyond its ends.
  const auto part = reduce_scores(view, false, -4, 12, 4);
  EXPECT_EQ(part[1].high[1], 8);
  EXPECT_GT(part[0].low[0], part[0].high[0]);
  EXPECT_GT(part[3].low[0], part[3].high[0]);
}

TEST(TopKSteps, SentenceNamesTheNarrowestMargin) {
  EXPECT_EQ(top_k_steps_sentence({}),
            "No kept step has a selection of this request in this layer.");
  const SessionInfo info = tiny();
  const StepTrace a = step_with(6, {1, 2, 3, 4, 5}, {2, 3, 4});
  const StepTrace b = step_with(7, {1, 9, 3, 4, 5, 4.5f}, {1, 4, 5});
  const std::vector<TopKStep> steps = {summarise_top_k(view_of(info, a), 6),
                                       summarise_top_k(view_of(info, b, &a), 7)};
  EXPECT_EQ(steps[1].entered, 2);
  EXPECT_EQ(steps[1].left, 2);
  EXPECT_EQ(top_k_steps_sentence(steps),
            "Steps 6-7: the narrowest margin is 0.5 (step 7); the set changes by at most 2 entries "
            "a step.");
  TopKStep idle;
  idle.step = 2;
  EXPECT_EQ(top_k_steps_sentence({idle}),
            "Step 2: every visible entry was selected, so there is no margin yet.");
}

TEST(LastRowOf, FindsTheRequestsNewestKeptToken) {
  const StepTrace step = make_step(0, 9, 5);
  EXPECT_EQ(last_row_of(step, 0), 4);
  EXPECT_EQ(last_row_of(step, 3), -1);
}

}  // namespace top_k_view_test
}  // namespace attnscope
