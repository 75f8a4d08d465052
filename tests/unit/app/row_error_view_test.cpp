// Row errors: rows put into a trace by hand, in formats whose scales are in the row and beside it.
#include "app/views/row_error_view.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/family/models.h"
#include "engine/model/numbers.h"
#include "tests/unit/app/trace_builder.h"

namespace attnscope {
namespace row_error_view_test {

constexpr std::int64_t kHeads = 2, kSize = 4;

SessionInfo info_of_llama() {
  SessionInfo info;
  info.config = *preset("tiny-llama");
  return info;
}

// A tap [tokens, heads, size].
void add_heads(OpTrace& op, const char* name, const std::vector<float>& values,
               std::int64_t tokens) {
  add_tap(op, name, values, tokens);
  TapCopy& tap = op.taps.back();
  tap.value =
      make_tensor(reinterpret_cast<float*>(tap.value_bytes.data()), {tokens, kHeads, kSize});
}

// Rows of all tokens: codes, then what each head has behind them.
RowsCopy rows_of(const char* name, std::int32_t record, const std::vector<int>& codes,
                 const std::vector<float>& behind, std::int64_t tokens) {
  RowsCopy rows;
  rows.name = name;
  rows.record = record;
  rows.width = kHeads * kSize;
  rows.heads = kHeads;
  const std::size_t own = codes.size() / to_size(tokens), more = behind.size() / to_size(tokens);
  rows.row_bytes = to_count(own + more * sizeof(float));
  for (std::int64_t t = 0; t < tokens; ++t) {
    rows.tokens.push_back(static_cast<std::int32_t>(t));
    rows.slots.push_back(t);
    for (std::size_t i = 0; i < own; ++i) {
      rows.bytes.push_back(static_cast<std::uint8_t>(codes[to_size(t) * own + i]));
    }
    for (std::size_t i = 0; i < more; ++i) {
      std::uint8_t bytes[sizeof(float)];
      std::memcpy(bytes, &behind[to_size(t) * more + i], sizeof(float));
      rows.bytes.insert(rows.bytes.end(), std::begin(bytes), std::end(bytes));
    }
  }
  return rows;
}

// int8 with scale 1/2: head 0 is read as it was; head 1 loses 1 of 5 in the first row, half of its
// length in the second one.
StepTrace int8_step() {
  StepTrace step = make_step(2, 12, 2);
  OpTrace& op = add_op(step, 1, AS_OP_ROPE_KV_INSERT);
  add_heads(op, "k_row", {1, 0, 0, 0, 3, 4, 0, 0, 0, -2, 0, 0, 0, 0, 2, 0}, 2);
  op.rows.push_back(rows_of("k_cache", AS_RECORD_INT8_TOKEN_HEAD,
                            {12, 10, 10, 10, 6, 6, 0, 0, 0, -4, 0, 0, 0, 0, 2, 0},
                            {0.5f, 10, 0.5f, 0, 0.5f, 0, 0.5f, 0}, 2));
  return step;
}

TEST(RowErrorView, SaysWhatEachHeadOfEachRowLost) {
  const StepTrace step = int8_step();
  const RowErrorView view = row_error_view(info_of_llama(), step, 1);
  ASSERT_EQ(view.why_empty, "");
  ASSERT_EQ(view.caches.size(), 1u);
  const CacheErrors& cache = view.caches[0];
  EXPECT_EQ(cache.format, "int8_token_head");
  ASSERT_EQ(cache.errors.size(), 4u);
  EXPECT_DOUBLE_EQ(cache.errors[0], 0) << "the zero point is taken off";
  EXPECT_DOUBLE_EQ(cache.errors[1], 0.2);
  EXPECT_DOUBLE_EQ(cache.errors[2], 0);
  EXPECT_DOUBLE_EQ(cache.errors[3], 0.5);
  EXPECT_DOUBLE_EQ(cache.of_heads[0], 0);
  EXPECT_DOUBLE_EQ(cache.of_heads[1], std::sqrt(2.0 / 29.0));
  EXPECT_EQ(cache.worst_row, 1);
  EXPECT_EQ(cache.worst_head, 1);
  EXPECT_EQ(view.largest, 0.5);
  EXPECT_EQ(view.sentence,
            "Layer 1, k_cache (int8_token_head): 0.5 of a head's length at most, head 1 of the "
            "token at position 11");
  EXPECT_EQ(worst_of_rows(cache, 1, 0, 1).error, 0.2);
  EXPECT_EQ(worst_of_rows(cache, 1, 0, 2).row, 1);
}

// The engine's own row counts, not the reference's: bytes are judged given that.
TEST(RowErrorView, TakesTheRowThatTheEngineStored) {
  StepTrace step = int8_step();
  auto op = std::make_shared<OpTrace>(*step.ops[0]);
  add_reference(*op, std::vector<float>(16, 9.0f), 2);
  TapCopy& tap = op->taps.back();
  tap.reference = make_tensor(reinterpret_cast<float*>(tap.reference_bytes.data()),
                              {std::int64_t{2}, kHeads, kSize});
  tap.value = make_tensor(reinterpret_cast<float*>(tap.value_bytes.data()),
                          {std::int64_t{2}, kHeads, kSize});
  step.ops[0] = op;
  EXPECT_EQ(row_error_view(info_of_llama(), step, 1).largest, 0.5);
}

TEST(RowErrorView, ReadsScalesBesideTheCache) {
  StepTrace step = make_step(2, 12, 1);
  OpTrace& op = add_op(step, 1, AS_OP_ROPE_KV_INSERT);
  add_heads(op, "v", {2, 0, 0, 0, 8, 0, 0, 0}, 1);
  TapCopy& scale = op.taps.emplace_back();
  scale.name = "v_scale";
  const std::vector<float> scales = {2, 4};
  scale.value = into(scale.value_bytes, scales, 1);
  scale.value = make_tensor(reinterpret_cast<float*>(scale.value_bytes.data()), {kHeads});
  // 0x38 is 1 in e4m3.
  op.rows.push_back(rows_of("v_cache", AS_RECORD_FP8_HEAD, {0x38, 0, 0, 0, 0x38, 0, 0, 0}, {}, 1));
  const RowErrorView view = row_error_view(info_of_llama(), step, 1);
  ASSERT_EQ(view.caches.size(), 1u);
  EXPECT_DOUBLE_EQ(view.caches[0].errors[0], 0);
  EXPECT_DOUBLE_EQ(view.caches[0].errors[1], 0.5);
}

// Of first tokens in 16 bits: keys are the op's row, values what it was given.
TEST(RowErrorView, RowsIn16BitsLoseNothing) {
  StepTrace step = make_step(2, 12, 1);
  OpTrace& op = add_op(step, 1, AS_OP_ROPE_KV_INSERT);
  add_heads(op, "k_row", {1, 0, 0, 0, 2, 0, 0, 0}, 1);
  add_heads(op, "v", {-2, 0, 0, 0, 1, 0, 0, 0}, 1);
  const std::vector<int> keys = {0x80, 0x3f, 0, 0, 0, 0, 0, 0, 0x00, 0x40, 0, 0, 0, 0, 0, 0};
  const std::vector<int> values = {0x00, 0xc0, 0, 0, 0, 0, 0, 0, 0x80, 0x3f, 0, 0, 0, 0, 0, 0};
  op.rows.push_back(rows_of("k_wide", AS_RECORD_BF16, keys, {}, 1));
  op.rows.push_back(rows_of("v_wide", AS_RECORD_BF16, values, {}, 1));
  const RowErrorView view = row_error_view(info_of_llama(), step, 1);
  ASSERT_EQ(view.caches.size(), 2u);
  EXPECT_EQ(view.sentence,
            "Layer 1, k_wide (bf16): nothing is lost; v_wide (bf16): nothing is lost");
}

TEST(RowErrorView, CountsWhatIsNoNumber) {
  StepTrace step = make_step(2, 12, 1);
  OpTrace& op = add_op(step, 1, AS_OP_ROPE_KV_INSERT);
  add_heads(op, "k_row", {0, 0, 0, 0, 0, 0, 0, 0}, 1);
  op.rows.push_back(rows_of("k_cache", AS_RECORD_INT8_TOKEN_HEAD, {0, 0, 0, 0, 1, 0, 0, 0},
                            {0.5f, 0, 0.5f, 0}, 1));
  const CacheErrors cache = row_error_view(info_of_llama(), step, 1).caches.at(0);
  EXPECT_EQ(cache.errors[0], 0) << "0 is read as 0";
  EXPECT_TRUE(std::isnan(cache.errors[1])) << "of nothing, something";
  EXPECT_EQ(cache.not_numbers, 1);
  EXPECT_TRUE(std::isnan(cache.of_heads.at(1)));
  EXPECT_TRUE(std::isnan(worst_of_rows(cache, 1, 0, 1).error));
}

TEST(RowErrorView, SaysWhyItIsEmpty) {
  StepTrace step = make_step(2, 12, 1);
  EXPECT_EQ(row_error_view(info_of_llama(), step, -1).why_empty,
            "Rows are stored in layers; the cursor is outside of them.");
  EXPECT_EQ(row_error_view(info_of_llama(), step, 1).why_empty,
            "Layer 1 has stored no rows in this step yet.");
  add_op(step, 1, AS_OP_ROPE_KV_INSERT)
      .rows.push_back(
          rows_of("k_cache", AS_RECORD_INT8_TOKEN_HEAD, {0, 0, 0, 0, 0, 0, 0, 0}, {1, 0, 1, 0}, 1));
  EXPECT_EQ(row_error_view(info_of_llama(), step, 1).why_empty,
            "What rows of layer 1 were made of is not kept.");
  EXPECT_FALSE(row_error_view(info_of_llama(), step, 1).none);
  // Of a decode step a layer that reads the source stores nothing, which no later op changes.
  SessionInfo across = info_of_llama();
  across.config.dense.sides = {kDecoderSide, kCrossSide};
  step = make_step(2, 12, 1);
  add_op(step, 1, AS_OP_ROPE_KV_INSERT).rows.emplace_back();
  const RowErrorView none = row_error_view(across, step, 1);
  EXPECT_EQ(none.why_empty, "Layer 1 stores rows of source tokens, and this step has none.");
  EXPECT_TRUE(none.none);
}

}  // namespace row_error_view_test
}  // namespace attnscope
