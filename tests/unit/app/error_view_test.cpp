// What the error panel says: grouping by op, sentences, and where the worst element lies.
#include "app/views/error_view.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/layout/records.h"
#include "tests/unit/app/trace_builder.h"

namespace attnscope {
namespace error_view_test {

TapResult make_result(std::int64_t step, int layer, as_op_id op, const std::string& tap,
                      Verdict verdict, double budget) {
  TapResult r;
  r.step = step;
  r.layer = layer;
  r.op = op;
  r.tap = tap;
  r.verdict = verdict;
  r.budget_used = budget;
  r.introduced = ErrorFigures{budget * 1e-3, budget * 1e-2, budget * 1e-6, 3};
  return r;
}

TEST(ErrorView, OneRowPerOpWithTheWorstOfItsTaps) {
  std::vector<TapResult> results = {
      make_result(3, 0, AS_OP_Q_KV_NORM, "qr", Verdict::kRounding, 0.5),
      make_result(3, 0, AS_OP_Q_KV_NORM, "kv", Verdict::kEqual, 0.1),
      make_result(3, 0, AS_OP_WO_B, "y", Verdict::kEqual, 0),
      make_result(3, 2, AS_OP_WO_B, "y", Verdict::kWrong, 4)};
  results[1].inherited = ErrorFigures{0.25, 0, 0, 0};
  const std::vector<OpError> all = op_errors(results, kAllLayers);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].tap, "qr");
  EXPECT_EQ(all[0].taps, 2);
  EXPECT_EQ(all[0].worst, Verdict::kRounding);
  EXPECT_DOUBLE_EQ(*all[0].errors[0][0], 0.5e-3);
  EXPECT_DOUBLE_EQ(*all[0].errors[1][0], 0.25);
  EXPECT_FALSE(all[0].errors[2][0].has_value());
  EXPECT_EQ(all[2].worst, Verdict::kWrong);
  const std::vector<OpError> layer = op_errors(results, 2);
  ASSERT_EQ(layer.size(), 1u);
  EXPECT_EQ(layer[0].place, (Place{3, 2, AS_OP_WO_B}));
}

std::shared_ptr<StepSummary> make_summary(std::int64_t step, std::vector<TapResult> results) {
  auto summary = std::make_shared<StepSummary>();
  summary->step = step;
  summary->complete = true;
  summary->results = std::move(results);
  return summary;
}

TEST(ErrorView, AllStepsFollowNewPictures) {
  Snapshot snapshot;
  snapshot.steps = {make_summary(0, {make_result(0, 0, AS_OP_WO_B, "y", Verdict::kRounding, 0.5)})};
  RunErrors run;
  run.update(snapshot);
  EXPECT_EQ(run.steps(), 1);
  auto partial = make_summary(1, {make_result(1, 0, AS_OP_ATTN_NORM, "y", Verdict::kEqual, 0),
                                  make_result(1, 0, AS_OP_WO_B, "y", Verdict::kRounding, 0.9)});
  partial->complete = false;
  snapshot.steps.push_back(partial);
  run.update(snapshot);
  ASSERT_EQ(run.rows().size(), 2u);
  EXPECT_EQ(run.rows()[0].place.op, AS_OP_ATTN_NORM);  // causal order
  EXPECT_EQ(run.rows()[1].budget.used, 0.9);
  EXPECT_EQ(run.steps(), 1);
  // The step is replaced by another, gone back and run again: the old one leaves no trace.
  snapshot.steps[1] = make_summary(1, {make_result(1, 0, AS_OP_WO_B, "y", Verdict::kEqual, 0.2)});
  run.update(snapshot);
  ASSERT_EQ(run.rows().size(), 1u);
  EXPECT_EQ(run.rows()[0].budget.used, 0.5);
  EXPECT_EQ(run.steps(), 2);
  snapshot.steps.erase(snapshot.steps.begin());
  run.update(snapshot);
  EXPECT_EQ(run.rows()[0].budget.used, 0.2);
}

TEST(ErrorView, SentenceOfAGoodStep) {
  const auto summary =
      make_summary(9, {make_result(9, 0, AS_OP_ATTN_NORM, "y", Verdict::kEqual, 0),
                       make_result(9, 2, AS_OP_SPARSE_ATTENTION, "o", Verdict::kRounding, 0.31)});
  EXPECT_EQ(error_sentence(nullptr, *summary, nullptr, {9, 0, AS_OP_ATTN_NORM}),
            "All 2 taps of step 9 agree with ref.sim: 1 equal, 1 by rounding; closest to its limit "
            "is sparse_attention.o in layer 2, 31 % of the tolerance.");
  EXPECT_EQ(error_verdict(*summary, nullptr), Verdict::kRounding);
}

TEST(ErrorView, OneUnitInTheLastPlaceIsSaidAsThat) {
  TapResult result = make_result(9, 0, AS_OP_ATTN_NORM, "y", Verdict::kRounding, 1);
  result.introduced = ErrorFigures{};
  result.introduced->max_ulp = 1;
  const auto summary = make_summary(9, {result});
  EXPECT_EQ(error_sentence(nullptr, *summary, nullptr, {9, 0, AS_OP_ATTN_NORM}),
            "The only tap of step 9 agrees with ref.sim: 1 by rounding; closest to its limit is "
            "attn_norm.y in layer 0, 1 ulp.");
}

TEST(ErrorView, SentenceOfAWrongTapNamesElementValuesAndLimit) {
  StepTrace step = make_step(9, 2104, 1);
  OpTrace& op = add_op(step, 2, AS_OP_SPARSE_ATTENTION);
  TapResult wrong = make_result(9, 2, AS_OP_SPARSE_ATTENTION, "o", Verdict::kWrong, 3.4);
  wrong.worst = WorstElement{{0, 5, 17}, 0.75, 0.5};
  op.results = {wrong};
  op.worst = Verdict::kWrong;
  const auto summary = make_summary(9, {wrong});
  EXPECT_EQ(error_sentence(&step, *summary, &op, op.place),
            "sparse_attention.o is wrong at token 2103, head 5, dim 17: 0.75 where ref.sim has "
            "0.5; 3.4 times the tolerance.");
  EXPECT_EQ(error_verdict(*summary, &op), Verdict::kWrong);
  // Seen from another op of the step.
  EXPECT_EQ(error_sentence(&step, *summary, nullptr, {9, 2, AS_OP_WO_A}),
            "wo_a agrees; the only wrong tap of step 9 is sparse_attention.o in layer 2.");
}

TEST(ErrorView, ValuesThatLookAlikeAreSaidInFull) {
  TapResult near = make_result(9, 2, AS_OP_SPARSE_ATTENTION, "lse", Verdict::kRounding, 0.25);
  near.worst = WorstElement{{0, 3}, 0.46430001, 0.46430002};
  EXPECT_EQ(result_sentence(nullptr, near),
            "sparse_attention.lse agrees with ref.sim but for rounding; worst at one element: "
            "0.46430001 where ref.sim has 0.46430002; 25 % of the tolerance.");
}

TEST(ErrorView, SelectionsAreSaidAsEntries) {
  TapResult wrong = make_result(9, 2, AS_OP_INDEXER_TOPK, "indices", Verdict::kWrong,
                                std::numeric_limits<double>::infinity());
  wrong.note = "33 entries selected, 34 wanted";
  wrong.worst = WorstElement{{0, 33}, -1, 12};
  EXPECT_EQ(result_sentence(nullptr, wrong),
            "indexer_topk.indices is wrong at one element: entry 12 is missing; it must be exact; "
            "33 entries selected, 34 wanted.");
  wrong.worst = WorstElement{{0, 33}, 7, -1};
  EXPECT_EQ(worst_words(wrong), "entry 7 is too many");
  wrong.worst = WorstElement{{0, 33}, 7, 8};
  EXPECT_EQ(worst_words(wrong), "entry 7 where ref.sim has entry 8");
}

TEST(ErrorView, SentenceWhenNothingWasCompared) {
  const auto none =
      make_summary(9, {make_result(9, 0, AS_OP_ATTN_NORM, "y", Verdict::kNotCompared, 0)});
  EXPECT_EQ(error_sentence(nullptr, *none, nullptr, {}), "No reference ran: nothing is compared.");
  EXPECT_EQ(error_sentence(nullptr, *make_summary(9, {}), nullptr, {}),
            "Nothing of step 9 was compared yet.");
}

TEST(ErrorView, WorstByteOfACacheRowIsNamedAsItsField) {
  StepTrace step = make_step(9, 2104, 2);
  OpTrace& op = add_op(step, 2, AS_OP_Q_ROPE_KV_INSERT);
  RowsCopy rows;
  rows.name = "cache";
  rows.record = AS_RECORD_LATENT;
  rows.width = AS_HEAD_DIM;
  rows.row_bytes = 584;
  rows.rows_per_block = 64;
  rows.tokens = {1};
  rows.slots = {130};
  op.rows = {rows};
  TapResult wrong = make_result(9, 2, AS_OP_Q_ROPE_KV_INSERT, "cache", Verdict::kWrong,
                                std::numeric_limits<double>::infinity());
  wrong.worst = WorstElement{{1, 450}, 12, 13};
  EXPECT_EQ(worst_text(step, wrong), "token 2103, byte 450 (bf16 of dim 449)");
  const auto cached = cached_element(op, wrong);
  ASSERT_TRUE(cached.has_value());
  EXPECT_EQ(cached->dim, 449);
  EXPECT_EQ(cached->slot, 130);
  EXPECT_EQ(cached->row, 0);
  wrong.worst->index = {1, 577};
  EXPECT_EQ(worst_text(step, wrong), "token 2103, byte 577 (UE8M0 scale of dims 64-127)");

  // The row before quantisation names dims, and lies in the same slot.
  TapResult before = wrong;
  before.tap = "kv_row";
  before.worst = WorstElement{{1, 30}, 1, 2};
  EXPECT_EQ(cached_element(op, before)->dim, 30);
  before.worst->index = {0, 30};  // wrote no row
  EXPECT_FALSE(cached_element(op, before).has_value());
  before.tap = "q";
  EXPECT_FALSE(cached_element(op, before).has_value());
}

TEST(ErrorView, EveryKindIsNamedAndExplained) {
  for (int i = 0; i < kErrorKinds; ++i) {
    const auto kind = static_cast<ErrorKind>(i);
    EXPECT_GT(std::string(error_kind_help(kind)).size(), 40u) << error_kind_name(kind);
  }
}

}  // namespace error_view_test
}  // namespace attnscope
