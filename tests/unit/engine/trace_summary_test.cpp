// Summaries: counts that add up, the first wrong tap, drift.
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "engine/trace/recount.h"
#include "engine/trace/tap_result.h"

namespace attnscope {
namespace trace_summary_test {

TapResult tap(Verdict verdict, std::int64_t step = 0, as_op_id op = AS_OP_WO_B) {
  TapResult r;
  r.verdict = verdict;
  r.step = step;
  r.op = op;
  return r;
}

TapResult output(int layer, std::int64_t step, double cosine) {
  TapResult r = tap(Verdict::kRounding, step, AS_OP_RESIDUAL);
  r.layer = layer;
  r.inherited = ErrorFigures{0, 0, cosine, 0};
  return r;
}

TEST(Summary, CountsAddUp) {
  std::vector<TapResult> results;
  for (int v = 0; v < kVerdicts; ++v) {
    for (int n = 0; n <= v; ++n) results.push_back(tap(static_cast<Verdict>(v)));
  }
  const Summary s = summarise(results, 1e-3);
  EXPECT_EQ(s.taps, 21);
  EXPECT_EQ(std::accumulate(s.counts.begin(), s.counts.end(), std::int64_t{0}), s.taps);
  EXPECT_EQ(s.count(Verdict::kWrong), 5);
  EXPECT_EQ(s.near_ties.size(), 4u);
}

TEST(Summary, TheFirstWrongTapIsTheCausallyFirst) {
  const Summary s = summarise({tap(Verdict::kEqual, 0), tap(Verdict::kWrong, 3, AS_OP_LM_HEAD),
                               tap(Verdict::kWrong, 4, AS_OP_SAMPLE)},
                              1e-3);
  ASSERT_TRUE(s.first_wrong);
  EXPECT_EQ(s.first_wrong->step, 3);
  EXPECT_EQ(s.first_wrong->op, AS_OP_LM_HEAD);
  EXPECT_EQ(s.verdict(), "wrong");
}

TEST(Summary, VerdictsInOrderOfSeverity) {
  EXPECT_EQ(summarise({}, 1e-3).verdict(), "not_compared");
  EXPECT_EQ(summarise({tap(Verdict::kEqual)}, 1e-3).verdict(), "ok");
  EXPECT_EQ(summarise({tap(Verdict::kNearTie)}, 1e-3).verdict(), "ok");
  EXPECT_EQ(summarise({tap(Verdict::kNotCompared)}, 1e-3).verdict(), "not_compared");
  EXPECT_EQ(summarise({output(0, 0, 2e-3)}, 1e-3).verdict(), "diverged");
  EXPECT_EQ(summarise({output(0, 0, 2e-3), tap(Verdict::kWrong)}, 1e-3).verdict(), "wrong");
}

TEST(Summary, DriftIsTheWorstOverTheRunPerLayer) {
  const Summary s = summarise(
      {output(2, 0, 1e-5), output(3, 0, 2e-5), output(2, 1, 4e-5), output(2, 2, 3e-5)}, 1e-3);
  ASSERT_EQ(s.drift.size(), 2u);
  EXPECT_EQ(s.drift[0].layer, 2);
  EXPECT_EQ(s.drift[0].step, 1);
  EXPECT_DOUBLE_EQ(s.drift[0].cosine, 4e-5);
  EXPECT_FALSE(s.diverged);
}

TEST(Summary, NotANumberIsTheWorstDrift) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Summary s = summarise({output(0, 0, 1e-5), output(0, 1, nan), output(0, 2, 1e-5)}, 1e-3);
  EXPECT_TRUE(s.diverged);
  EXPECT_EQ(s.drift[0].step, 1);
}

// Scores of a layer that have drifted so far, and a selection by them that differs.
std::vector<TapResult> parted(int layer, std::int64_t step, double scores, double margin = 1e-4,
                              double difference = 1e-3) {
  TapResult logits = tap(Verdict::kRounding, step, AS_OP_INDEXER_LOGITS);
  logits.layer = layer;
  logits.inherited.emplace().cosine = scores;
  TapResult chosen = tap(Verdict::kEqual, step, AS_OP_INDEXER_TOPK);
  chosen.layer = layer;
  chosen.selection = SelectionDrift{1, 2, margin, difference, 0.99};
  return {logits, chosen};
}

Summary summary_of(std::initializer_list<std::vector<TapResult>> parts) {
  std::vector<TapResult> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return summarise(all, 1e-3);
}

using Outputs = std::vector<TapResult>;

TEST(Summary, DriftPastNearTiesIsExcused) {
  const Summary s = summary_of({{output(0, 5, 1e-6)}, parted(2, 5, 1e-5), {output(2, 5, 2e-3)}});
  EXPECT_FALSE(s.diverged);
  EXPECT_EQ(s.verdict(), "ok");
  ASSERT_EQ(s.drift.size(), 2u);
  EXPECT_FALSE(s.drift[0].past_near_ties);
  EXPECT_TRUE(s.drift[1].past_near_ties);
  EXPECT_FALSE(s.drift[1].beyond);
  EXPECT_DOUBLE_EQ(s.drift[1].cosine, 2e-3);
}

TEST(Summary, LayersBehindReadWhatNearTiesMoved) {
  const auto ties = parted(2, 5, 1e-5);
  EXPECT_FALSE(summary_of({ties, {output(3, 5, 2e-3)}}).diverged);
  // Later steps of the layers behind read its rows; those of the layer itself do not.
  EXPECT_FALSE(summary_of({ties, {output(3, 9, 2e-3)}}).diverged);
  EXPECT_TRUE(summary_of({ties, {output(2, 9, 2e-3)}}).diverged);
  // Nor do layers before it, and steps before.
  EXPECT_TRUE(summary_of({ties, {output(0, 9, 2e-3)}}).diverged);
  EXPECT_TRUE(summary_of({{output(3, 4, 2e-3)}, ties}).diverged);
}

TEST(Summary, OtherSelectionsThanByNearTiesExcuseNothing) {
  const Outputs out = {output(2, 5, 2e-3)};
  // Scores that have nothing to do with each other, or whose difference does not explain a swap.
  EXPECT_TRUE(summary_of({parted(2, 5, 0.5), out}).diverged);
  EXPECT_TRUE(summary_of({parted(2, 5, 1e-5, 3e-3, 1e-3), out}).diverged);
  // A selection that is wrong by its own scores; such a run is wrong besides.
  std::vector<TapResult> bad = parted(2, 5, 1e-5);
  bad.back().verdict = Verdict::kWrong;
  const Summary s = summary_of({bad, out});
  EXPECT_TRUE(s.diverged);
  EXPECT_EQ(s.verdict(), "wrong");
  // One of both kinds.
  EXPECT_TRUE(summary_of({parted(0, 5, 0.5), parted(2, 5, 1e-5), out}).diverged);
  // No scores are known.
  EXPECT_TRUE(summary_of({{parted(2, 5, 1e-5).back()}, out}).diverged);
}

TEST(Summary, NearTiesDoNotReplaceAnOutput) {
  EXPECT_TRUE(summary_of({parted(2, 5, 1e-5), {output(2, 5, 2e-2)}}).diverged);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(summary_of({parted(2, 5, 1e-5), {output(2, 5, nan)}}).diverged);
}

TEST(Summary, ScoresBehindNearTiesMayDriftAsOutputsDo) {
  // Layer 4 scores by what layer 2 has moved.
  const Summary s = summary_of({parted(2, 5, 1e-5), parted(4, 5, 2e-3), {output(4, 5, 3e-3)}});
  EXPECT_FALSE(s.diverged);
  EXPECT_TRUE(summary_of({parted(4, 5, 2e-3), {output(4, 5, 3e-3)}}).diverged);
}

TapResult wrong(as_op_id op, const char* tap, std::int64_t step) {
  TapResult r;
  r.op = op;
  r.tap = tap;
  r.step = step;
  r.verdict = Verdict::kWrong;
  r.note = "why";
  return r;
}

TEST(Blame, WrongRowsBehindABlamedOpBlameNobodyElse) {
  const auto blamed =
      blame({wrong(AS_OP_SLOT_MAPPING, "slots", 1), wrong(AS_OP_SPARSE_ATTENTION, "cache.read", 1),
             wrong(AS_OP_COMPRESS_INSERT, "cache.kept", 1),
             wrong(AS_OP_COMPRESS_INSERT, "cache.between", 1), wrong(AS_OP_WO_B, "y", 2),
             wrong(AS_OP_WO_B, "y", 3)});
  ASSERT_EQ(blamed.size(), 2u);
  EXPECT_EQ(blamed[0].op, AS_OP_SLOT_MAPPING);
  EXPECT_EQ(blamed[1].op, AS_OP_WO_B);
  EXPECT_EQ(blamed[1].taps, 2);
  EXPECT_EQ(blamed[1].first.step, 2);
  EXPECT_NE(blamed[1].sentence().find("step 2, wo_b"), std::string::npos);
}

TEST(Blame, WrongRowsThatNobodyAnswersForBlameTheCache) {
  // The writer of another cache answers for none of these rows.
  const auto blamed = blame(
      {wrong(AS_OP_Q_ROPE_KV_INSERT, "cache", 1), wrong(AS_OP_INDEXER_LOGITS, "cache.read", 1)});
  ASSERT_EQ(blamed.size(), 2u);
  EXPECT_TRUE(blamed[1].cache);
  EXPECT_NE(blamed[1].sentence().find("cache.read"), std::string::npos);
}

// Said at the end of the step, when the rows have been found wrong.
TEST(Blame, WrongRowsOfAnOpThatWasGivenOtherPagesBlameTheWiring) {
  auto blamed = blame({wrong(AS_OP_COMPRESS_INSERT, "state.read", 1),
                       wrong(AS_OP_COMPRESS_INSERT, "table.wiring", 1)});
  ASSERT_EQ(blamed.size(), 1u);
  EXPECT_EQ(blamed[0].first.tap, "table.wiring");
  // What the writer was given, rows that its reader does not find.
  blamed = blame({wrong(AS_OP_SPARSE_ATTENTION, "cache.read", 1),
                  wrong(AS_OP_Q_ROPE_KV_INSERT, "slots.wiring", 1)});
  ASSERT_EQ(blamed.size(), 1u);
  EXPECT_EQ(blamed[0].op, AS_OP_Q_ROPE_KV_INSERT);
  // Rows of first tokens in 16 bits have places of their own.
  for (const char* place : {"wide_table", "wide_tokens", "k_wide", "v_wide"}) {
    blamed = blame({wrong(AS_OP_PAGED_ATTENTION, "k_wide.read", 1),
                    wrong(AS_OP_PAGED_ATTENTION, (std::string(place) + ".wiring").c_str(), 1)});
    ASSERT_EQ(blamed.size(), 1u) << place;
    EXPECT_EQ(blamed[0].first.tap, std::string(place) + ".wiring");
  }
  // Another weight moves no rows.
  blamed = blame({wrong(AS_OP_SPARSE_ATTENTION, "cache.read", 1),
                  wrong(AS_OP_SPARSE_ATTENTION, "sinks.wiring", 1)});
  ASSERT_EQ(blamed.size(), 2u);
  EXPECT_TRUE(blamed[0].cache);
}

TEST(Summary, SaysHowMuchOfEachBoundWasUsedAndWhichIsSlack) {
  TapResult tight = wrong(AS_OP_WO_B, "y", 0);
  tight.verdict = Verdict::kRounding;
  tight.introduced = ErrorFigures{};
  tight.tolerance = "dense";
  TapResult slack = tight, exact = tight;
  tight.budget_used = 0.5;
  slack.op = AS_OP_WO_A;
  slack.budget_used = 0.04;
  exact.op = AS_OP_SWA_INDEX;
  exact.tolerance = "exact";
  const Summary summary = summarise({tight, slack, exact, slack}, 1);
  ASSERT_EQ(summary.budgets.size(), 3u);
  EXPECT_EQ(summary.budgets[0].used, 0.5);
  EXPECT_FALSE(summary.budgets[0].slack());
  EXPECT_TRUE(summary.budgets[1].slack());
  EXPECT_EQ(summary.budgets[1].taps, 2);
  EXPECT_FALSE(summary.budgets[2].slack());
}

// What a summary of the same results says, and what summaries of others would say.
TEST(Recount, HoldsASummaryAgainstTheResults) {
  const std::vector<TapResult> results = {tap(Verdict::kEqual, 0),
                                          tap(Verdict::kWrong, 3, AS_OP_LM_HEAD),
                                          tap(Verdict::kWrong, 4, AS_OP_SAMPLE)};
  Recount recount, none;
  for (const TapResult& r : results) recount.add(r);
  const Summary sound = summarise(results, 1e-3);
  EXPECT_TRUE(recount.hold(sound));
  EXPECT_TRUE(recount.hold(false));
  EXPECT_TRUE(none.hold(summarise({}, 1e-3)));
  EXPECT_TRUE(none.hold(true));
  const auto contradicted = [&](const Result<void>& held, const std::string& what) {
    ASSERT_FALSE(held) << what;
    EXPECT_EQ(held.error().code, AS_INTERNAL);
    EXPECT_NE(held.error().message.find("step 3, layer -1, lm_head"), std::string::npos);
    EXPECT_NE(held.error().message.find(what), std::string::npos) << held.error().message;
  };
  contradicted(recount.hold(true), "the run is called ok");
  contradicted(recount.hold(summarise({results[2]}, 1e-3)), "the summary is of 1 results");
  Summary other = sound;
  other.counts[static_cast<std::size_t>(Verdict::kWrong)] = 0;
  contradicted(recount.hold(other), "the summary counts 0");
  other = sound;
  other.blamed.front().first = results[2];
  contradicted(recount.hold(other), "the first to blame is step 4");
  // Wiring is looked at behind its step, and rows that are not where they are looked for follow.
  TapResult& given = other.blamed.front().first;
  given.tap = "slots.wiring";
  contradicted(recount.hold(other), "the first to blame is step 4");
  given.step = 3;
  EXPECT_TRUE(recount.hold(other));
  other.blamed.clear();
  contradicted(recount.hold(other), "the blame is another");
}

}  // namespace trace_summary_test
}  // namespace attnscope
