// The tensor inspector's words and numbers.
#include "app/views/tensor_view.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/cpu/codec.h"
#include "tests/unit/app/trace_builder.h"

namespace attnscope {
namespace tensor_view_test {

constexpr auto kNoDeadline = ScanClock::time_point::max();
const double kNan = std::numeric_limits<double>::quiet_NaN();
const double kInf = std::numeric_limits<double>::infinity();

TapCopy& last_tap(OpTrace& op, const std::string& axes, std::initializer_list<std::int64_t> shape) {
  TapCopy& tap = op.taps.back();
  tap.axes = axes;
  tap.value = make_tensor(tap.value.data, tap.value.dtype, shape);
  if (present(tap.reference)) {
    tap.reference = make_tensor(tap.reference.data, tap.reference.dtype, shape);
  }
  return tap;
}

TEST(TensorView, AxesAreNamedAndLinked) {
  StepTrace step = make_step(7, 40, 3);
  OpTrace& op = add_op(step, 2, AS_OP_SPARSE_ATTENTION);
  add_tap(op, "o", std::vector<float>(3 * 2 * 4), 3);
  const TapCopy& tap = last_tap(op, "T,H,D", {3, 2, 4});
  const std::vector<TapAxis> axes = axes_of(step, op, tap);
  ASSERT_EQ(axes.size(), 3u);
  EXPECT_EQ(axes[0].name, "token");
  EXPECT_EQ(axes[0].link, AxisLink::kToken);
  EXPECT_EQ(axes[1].link, AxisLink::kHead);
  EXPECT_EQ(axes[2].link, AxisLink::kDim);
  EXPECT_EQ(shape_text(step, op, tap), "[T 3, H 2, D 4]");
  EXPECT_EQ(element_text(step, op, tap, TapIndex({2, 1, 3})), "token 39, head 1, dim 3");
}

TEST(TensorView, RowsAfterTheLayersAreSampledRows) {
  StepTrace step = make_step(7, 40, 3);
  step.metadata.sample_rows = {2};
  OpTrace& op = add_op(step, -1, AS_OP_LM_HEAD);
  add_tap(op, "y", std::vector<float>(5), 1);
  const TapCopy& tap = last_tap(op, "T,out", {1, 5});
  EXPECT_EQ(axes_of(step, op, tap)[0].name, "sampled row");
  EXPECT_EQ(token_row_at(step, op, 0), 2);
  EXPECT_EQ(token_row_at(step, op, 1), -1);
  EXPECT_EQ(index_of_token_row(step, op, 2), 0);
  EXPECT_EQ(index_of_token_row(step, op, 1), -1);
}

TEST(TensorView, SaysWhichRowsAreKept) {
  StepTrace step = make_step(0, 512, 512);
  EXPECT_EQ(kept_rows(step), "");
  step.kept.erase(step.kept.begin(), step.kept.begin() + 480);
  EXPECT_EQ(kept_rows(step), "rows 480-511 of 512 kept");
  step.kept = {3, 4, 9};
  EXPECT_EQ(kept_rows(step), "rows 3-4, 9 of 512 kept");
}

TEST(TensorView, ElementsOfAllTypesThroughStrides) {
  std::vector<float> f = {1, 2, 3, 4, 5, 6};
  as_tensor t = make_tensor(f.data(), {2, 3});
  EXPECT_EQ(element_at(t, TapIndex({1, 2})), 6);
  std::swap(t.shape[0], t.shape[1]);
  std::swap(t.stride[0], t.stride[1]);
  EXPECT_EQ(element_at(t, TapIndex({2, 0})), 3);
  std::vector<std::uint16_t> b = {cpu::float_to_bf16(-2.5f)};
  EXPECT_EQ(element_at(make_tensor(b.data(), AS_BF16, {1}), TapIndex({0})), -2.5);
  std::vector<std::int64_t> i = {-7};
  EXPECT_EQ(element_at(make_tensor(i.data(), {1}), TapIndex({0})), -7);
  std::vector<std::uint8_t> u = {200};
  EXPECT_EQ(element_at(make_tensor(u.data(), {1}), TapIndex({0})), 200);
}

TEST(TensorView, RoundingDecidesWhatDiffers) {
  EXPECT_TRUE(same_when_rounded(1.0, 1.0 + 1e-4, AS_BF16));
  EXPECT_FALSE(same_when_rounded(1.0, 1.0 + 1e-2, AS_BF16));
  EXPECT_FALSE(same_when_rounded(1.0, 1.0 + 1e-4, AS_F32));
  EXPECT_TRUE(same_when_rounded(1.0, 1.0 + 1e-9, AS_F32));
  EXPECT_TRUE(same_when_rounded(kNan, kNan, AS_BF16));
  EXPECT_FALSE(same_when_rounded(1.0, kInf, AS_BF16));
  EXPECT_FALSE(same_when_rounded(3, 4, AS_I32));
}

TEST(TensorView, GapsAreElementsThatHoldNothing) {
  StepTrace step = make_step(7, 40, 2);
  OpTrace& logits = add_op(step, 2, AS_OP_INDEXER_LOGITS);
  add_tap(logits, "lens", std::vector<std::int32_t>{1, 2}, 2);
  logits.taps.back().value = make_tensor(logits.taps.back().value.data, AS_I32, {2});
  add_tap(logits, "logits", std::vector<float>{1, 0, 0, 2, 3, 0}, 2);
  const TapCopy& tap = *logits.tap("logits");
  const TapGaps gaps = gaps_of(logits, tap);
  EXPECT_EQ(gaps.why(tap, TapIndex({0, 0})), nullptr);
  EXPECT_STREQ(gaps.why(tap, TapIndex({0, 1})), "beyond what this token sees");
  EXPECT_EQ(gaps.why(tap, TapIndex({1, 1})), nullptr);

  OpTrace& insert = add_op(step, 2, AS_OP_COMPRESS_INSERT);
  add_tap(insert, "slots", std::vector<std::int64_t>{-1, 5}, 2);
  insert.taps.back().value = make_tensor(insert.taps.back().value.data, AS_I64, {2});
  add_tap(insert, "row", std::vector<float>(8), 2);
  add_tap(insert, "table", std::vector<std::int32_t>{0, 3}, 1);
  last_tap(insert, "R,C", {1, 2});
  const TapGaps rows = gaps_of(insert, *insert.tap("row"));
  EXPECT_NE(rows.why(*insert.tap("row"), TapIndex({0, 1})), nullptr);
  EXPECT_EQ(rows.why(*insert.tap("row"), TapIndex({1, 1})), nullptr);
  const TapGaps table = gaps_of(insert, *insert.tap("table"));
  EXPECT_STREQ(table.why(*insert.tap("table"), TapIndex({0, 0})), "0: null block");
  EXPECT_EQ(table.why(*insert.tap("table"), TapIndex({0, 1})), nullptr);
  const TapGaps slots = gaps_of(insert, *insert.tap("slots"));
  EXPECT_STREQ(slots.why(*insert.tap("slots"), TapIndex({0})), "-1: none");
}

TEST(TensorView, SlicesAndTheirCells) {
  StepTrace step = make_step(7, 40, 3);
  OpTrace& op = add_op(step, 2, AS_OP_SPARSE_ATTENTION);
  add_tap(op, "o", std::vector<float>(24), 3);
  TapSlice slice = default_slice(last_tap(op, "T,H,D", {3, 2, 4}));
  slice.fixed[0] = 2;
  EXPECT_EQ(slice.rows(), 2);
  EXPECT_EQ(slice.columns(), 4);
  EXPECT_EQ(slice.index(1, 3).vector(), (std::vector<std::int64_t>{2, 1, 3}));
  EXPECT_EQ(slice.cell(TapIndex({0, 1, 2})).row, 1);
  EXPECT_EQ(slice.cell(TapIndex({0, 1})).row, -1);

  add_tap(op, "sinks", std::vector<float>(130), 1);
  const TapSlice line = default_slice(last_tap(op, "H", {130}));
  EXPECT_EQ(line.rows(), 3);
  EXPECT_EQ(line.columns(), 64);
  EXPECT_EQ(line.index(2, 1).vector(), (std::vector<std::int64_t>{129}));
  EXPECT_EQ(line.index(2, 2).rank, 0);
  EXPECT_EQ(line.cell(TapIndex({129})).row, 2);
  EXPECT_EQ(line.cell(TapIndex({129})).column, 1);
}

TEST(TensorView, TheStepBeforeIsFollowedByRequest) {
  // Requests 0 and 1 now; request 0 alone before. Rows count from a request's last one.
  StepTrace now = make_step(8, 41, 1), before = make_step(7, 40, 3);
  now.metadata.live = {0, 1};
  now.metadata.positions = {40, 5};
  now.metadata.token_to_req = {0, 1};
  now.kept = {0, 1};
  EXPECT_EQ(rows_before(now, before), (std::vector<std::int64_t>{2, -1}));
  before.kept = {2};
  EXPECT_EQ(rows_before(now, before), (std::vector<std::int64_t>{0, -1}));
  before.kept = {0};
  EXPECT_EQ(rows_before(now, before), (std::vector<std::int64_t>{-1, -1}));
  now.metadata.sample_rows = {1, 0};
  before.metadata.sample_rows = {2};
  EXPECT_EQ(sampled_rows_before(now, before), (std::vector<std::int64_t>{-1, 0}));
}

TEST(TensorView, ReaderShowsValueReferenceDifferenceAndBefore) {
  StepTrace step = make_step(8, 41, 1), before = make_step(7, 40, 1);
  add_op(step, 2, AS_OP_ATTN_NORM);
  add_op(before, 2, AS_OP_ATTN_NORM);
  auto& op = const_cast<OpTrace&>(*step.ops[0]);
  auto& old = const_cast<OpTrace&>(*before.ops[0]);
  add_tap(op, "y", std::vector<float>{1, 2, 3}, 1);
  add_reference(op, std::vector<double>{1 + 1e-9, 2, 2.5}, 1);
  add_tap(old, "y", std::vector<float>{7, 8}, 1);
  op.taps[0].output = true;
  TapReader reader;
  reader.op = step.ops[0];
  reader.tap = &op.taps[0];
  reader.op_before = before.ops[0];
  reader.tap_before = &old.taps[0];
  reader.token_axis = 0;
  reader.before = rows_before(step, before);
  EXPECT_EQ(reader.value(TapIndex({0, 2})), 3);
  reader.mode = TensorMode::kReference;
  EXPECT_EQ(reader.value(TapIndex({0, 2})), 2.5);
  reader.mode = TensorMode::kDifference;
  EXPECT_EQ(reader.value(TapIndex({0, 0})), 0);
  EXPECT_EQ(reader.value(TapIndex({0, 2})), 0.5);
  reader.beyond_rounding = false;
  EXPECT_LT(reader.value(TapIndex({0, 0})), 0);
  reader.mode = TensorMode::kBefore;
  EXPECT_EQ(reader.value(TapIndex({0, 1})), 8);
  EXPECT_FALSE(reader.absent(TapIndex({0, 1})));
  EXPECT_TRUE(reader.absent(TapIndex({0, 2})));  // the tap was narrower then
  EXPECT_EQ(why_not(reader, &before, TensorMode::kBefore), "");
  EXPECT_NE(why_not(reader, nullptr, TensorMode::kBefore).find("not kept"), std::string::npos);
  reader.before = {-1};
  EXPECT_TRUE(reader.absent(TapIndex({0, 0})));
  EXPECT_NE(why_not(reader, &before, TensorMode::kBefore).find("no row"), std::string::npos);
  reader.token_axis = -1;
  EXPECT_NE(why_not(reader, &before, TensorMode::kBefore).find("no token axis"), std::string::npos);
}

TEST(TensorView, SentenceOfAComparedTap) {
  StepTrace step = make_step(8, 41, 1);
  OpTrace& op = add_op(step, 2, AS_OP_ATTN_NORM);
  add_tap(op, "y", std::vector<float>{-1.5, 2, 3, 0.25}, 1);
  add_reference(op, std::vector<double>{-1.5, 2, 2.5, 0.25}, 1);
  last_tap(op, "T,hidden", {1, 4}).output = true;
  TapResult result;
  result.tap = "y";
  result.verdict = Verdict::kRounding;
  op.results.push_back(result);
  TapScan scan;
  scan.start(step.ops[0], &op.taps[0]);
  ASSERT_TRUE(scan.advance(kNoDeadline));
  EXPECT_EQ(scan.differing, 1);
  EXPECT_EQ(tensor_sentence(step, op, op.taps[0], scan),
            "y [T 1, hidden 4] f32: values -1.5 to 3, no NaN; 1 of 4 elements differ from ref.sim "
            "by rounding, largest difference 0.5 at token 40, hidden 2.");
  op.results[0].verdict = Verdict::kWrong;
  EXPECT_NE(tensor_sentence(step, op, op.taps[0], scan).find("differ wrongly from ref.sim"),
            std::string::npos);
}

TEST(TensorView, SentenceOfListsAndOfWhatIsNotANumber) {
  StepTrace step = make_step(8, 41, 2);
  OpTrace& topk = add_op(step, 2, AS_OP_INDEXER_TOPK);
  add_tap(topk, "indices", std::vector<std::int32_t>{0, 4, -1, 2, -1, -1}, 2);
  last_tap(topk, "T,K", {2, 3}).output = true;
  TapScan scan;
  scan.start(step.ops[0], &topk.taps[0]);
  scan.advance(kNoDeadline);
  EXPECT_EQ(tensor_sentence(step, topk, topk.taps[0], scan),
            "indices [T 2, K 3] i32: 3 values from 0 to 4, 3 are none; not compared.");

  add_tap(topk, "lens", std::vector<std::int32_t>{7, 7}, 2);
  last_tap(topk, "T", {2});
  scan.start(step.ops[0], topk.tap("lens"));
  scan.advance(kNoDeadline);
  EXPECT_EQ(tensor_sentence(step, topk, *topk.tap("lens"), scan),
            "lens [T 2] i32: 2 values, all 7; an input.");

  OpTrace& norm = add_op(step, 2, AS_OP_ATTN_NORM);
  add_tap(norm, "x", std::vector<double>{1, kNan, kInf, -2}, 2);
  last_tap(norm, "T,hidden", {2, 2});
  scan.start(step.ops[1], &norm.taps[0]);
  EXPECT_FALSE(scan.done());
  scan.advance(kNoDeadline);
  step.kept = {0, 1};
  EXPECT_EQ(tensor_sentence(step, norm, norm.taps[0], scan),
            "x [T 2, hidden 2] f64: values -2 to 1, 1 NaN, 1 infinite; an input.");
}

TEST(TensorView, CsvHasNamesAndFullPrecision) {
  const CellValue value = [](std::int64_t r, std::int64_t c) {
    return static_cast<double>(r) + 0.1 * static_cast<double>(c);
  };
  const CellAbsent absent = [](std::int64_t r, std::int64_t c) { return r == 1 && c == 0; };
  const auto name = [](std::int64_t i) { return std::to_string(i + 10); };
  EXPECT_EQ(slice_csv(2, 2, value, absent, name, name, 100), ",10,11\n10,0,0.1\n11,,1.1\n");
  EXPECT_EQ(slice_csv(2, 2, value, {}, name, name, 2), ",10,11\n10,0,0.1\n");
}

}  // namespace tensor_view_test
}  // namespace attnscope
