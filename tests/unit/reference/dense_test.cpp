#include <cmath>

#include "kernels/params/op_table.h"
#include "tests/unit/reference/lane_test.h"
#include "tests/unit/reference/plain_codec.h"

namespace attnscope::reference {
namespace dense_test {

std::vector<bf16_t> to_bf16(const Doubles& values) {
  std::vector<bf16_t> result(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) result[i].bits = bf16_bits(values[i]);
  return result;
}

TEST(Linear, EqualsTheFormulaAndRoundsByOp) {
  const int tokens = 3;
  const int in = 700;
  const int out = 901;
  std::vector<bf16_t> x = to_bf16(normal(tokens * in, 1));
  std::vector<bf16_t> weight = to_bf16(normal(out * in, 2, 0.05));
  Doubles y(tokens * out);
  auto p = new_params<as_linear_params>();
  p.x = over(x, {tokens, in});
  p.weight = over(weight, {out, in});
  p.y = over(y, {tokens, out});
  Doubles expected(y.size());
  for (int t = 0; t < tokens; ++t) {
    for (int o = 0; o < out; ++o) {
      for (int i = 0; i < in; ++i) {
        expected[index_of(t, out, o)] +=
            bf16_value(x[index_of(t, in, i)].bits) * bf16_value(weight[index_of(o, in, i)].bits);
      }
    }
  }
  run(exact_lane(), AS_OP_Q_B_PROJ, p);
  for (std::size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], expected[i], 1e-12);
  const Doubles exact = y;
  run(sim_lane(), AS_OP_Q_B_PROJ, p);
  for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], round_to_bf16(exact[i]));
  run(sim_lane(), AS_OP_LM_HEAD, p);
  for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], round_to_fp32(exact[i]));

  // A kernel's output dtype is rounded to in either lane.
  std::vector<bf16_t> y16(y.size());
  p.y = over(y16, {tokens, out});
  run(exact_lane(), AS_OP_Q_B_PROJ, p);
  for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y16[i].bits, bf16_bits(exact[i]));
}

// By the op, whatever the lists say of it: compressors and the head put out fp32.
TEST(Linear, RoundsToBf16ButForCompressorsAndTheHead) {
  std::vector<bf16_t> x = to_bf16({1, 1}), weight = to_bf16({1, std::ldexp(1.0, -12)});
  Doubles y(1);
  auto p = new_params<as_linear_params>();
  p.x = over(x, {1, 2});
  p.weight = over(weight, {1, 2});
  p.y = over(y, {1, 1});
  int ops = 0;
  for (int i = 0; const as_op_info* op = as_op_at(i); ++i) {
    const bool linear = op->taps == as_op_find(AS_OP_LM_HEAD)->taps;
    if (!linear) continue;
    ++ops;
    run(sim_lane(), op->id, p);
    const bool fp32 = op->id == AS_OP_COMPRESSOR_PROJ || op->id == AS_OP_INDEXER_COMPRESSOR_PROJ ||
                      op->id == AS_OP_INDEX_WEIGHTS_PROJ || op->id == AS_OP_LM_HEAD;
    EXPECT_EQ(y[0], fp32 ? 1 + std::ldexp(1.0, -12) : 1.0) << op->name;
  }
  EXPECT_EQ(ops, 16);
}

// A projection of many rows, with more outputs than are converted at a time: the last block is a
// part of one.
TEST(Linear, EqualsTheFormulaOverSeveralBlocks) {
  const int tokens = 9, in = 2048, out = 2100;
  Doubles x = normal(tokens * in, 4);
  std::vector<bf16_t> weight = to_bf16(normal(out * in, 5, 0.05));
  Doubles values(weight.size());
  for (std::size_t i = 0; i < weight.size(); ++i) values[i] = bf16_value(weight[i].bits);
  Doubles y(tokens * out);
  auto p = new_params<as_linear_params>();
  p.x = over(x, {tokens, in});
  p.weight = over(weight, {out, in});
  p.y = over(y, {tokens, out});
  run(exact_lane(), AS_OP_Q_B_PROJ, p);
  for (int t = 0; t < tokens; ++t) {
    for (int o = 0; o < out; ++o) {
      double expected = 0;
      for (int i = 0; i < in; ++i) {
        expected += x[index_of(t, in, i)] * values[index_of(o, in, i)];
      }
      ASSERT_NEAR(y[index_of(t, out, o)], expected, 1e-11) << t << " " << o;
    }
  }
}

// A weight that changed in place between two calls is seen.
TEST(Linear, KeepsNothingOfAWeight) {
  Doubles x = {1, 2};
  std::vector<bf16_t> weight = to_bf16({3, 4});
  Doubles y(1);
  auto p = new_params<as_linear_params>();
  p.x = over(x, {1, 2});
  p.weight = over(weight, {1, 2});
  p.y = over(y, {1, 1});
  run(sim_lane(), AS_OP_WO_B, p);
  EXPECT_EQ(y[0], 11);
  weight[1].bits = bf16_bits(5);
  run(sim_lane(), AS_OP_WO_B, p);
  EXPECT_EQ(y[0], 13);
}

TEST(GroupedLinear, EachGroupHasItsOwnWeight) {
  const int tokens = 4;
  const int groups = 3;
  const int in = 16;
  const int out = 5;
  Doubles x = normal(tokens * groups * in, 1);
  Doubles weight = normal(groups * out * in, 2);
  Doubles y(tokens * groups * out);
  auto p = new_params<as_grouped_linear_params>();
  p.x = over(x, {tokens, groups, in});
  p.weight = over(weight, {groups, out, in});
  p.y = over(y, {tokens, groups, out});
  run(exact_lane(), AS_OP_WO_A, p);
  for (int t = 0; t < tokens; ++t) {
    for (int g = 0; g < groups; ++g) {
      for (int o = 0; o < out; ++o) {
        double sum = 0;
        for (int i = 0; i < in; ++i) {
          sum += x[index_of(t * groups + g, in, i)] * weight[index_of(g * out + o, in, i)];
        }
        EXPECT_NEAR(y[index_of(t * groups + g, out, o)], sum, 1e-13);
      }
    }
  }
}

TEST(RmsNorm, MultipliesByTheWeight) {
  Doubles x = {3, 4, 0, 0};
  Doubles weight = {1, 2, 1, 1};
  Doubles y(4);
  auto p = new_params<as_rms_norm_params>();
  p.x = over(x, {1, 4});
  p.weight = over(weight, {4});
  p.y = over(y, {1, 4});
  p.eps = 0;
  run(exact_lane(), AS_OP_ATTN_NORM, p);
  EXPECT_NEAR(y[0], 3 / 2.5, 1e-15);
  EXPECT_NEAR(y[1], 2 * 4 / 2.5, 1e-15);
  run(sim_lane(), AS_OP_FINAL_NORM, p);
  EXPECT_EQ(y[0], round_to_bf16(1.2));
  p.weight_plus_one = 1;
  run(exact_lane(), AS_OP_ATTN_NORM, p);
  EXPECT_NEAR(y[0], 2 * 3 / 2.5, 1e-15);
  EXPECT_NEAR(y[1], 3 * 4 / 2.5, 1e-15);
  x = {0, 0, 0, 0};
  p.eps = 1e-6;
  run(sim_lane(), AS_OP_ATTN_NORM, p);
  EXPECT_EQ(y[1], 0);
}

TEST(QKvNorm, NormalisesEachHalfOnItsOwn) {
  Doubles qkv = {3, 4, 1, 1, 1, 1};
  Doubles q_weight = {1, 1};
  Doubles kv_weight = {1, 2, 3, 4};
  Doubles qr(2);
  Doubles kv(4);
  auto p = new_params<as_q_kv_norm_params>();
  p.qkv = over(qkv, {1, 6});
  p.q_weight = over(q_weight, {2});
  p.kv_weight = over(kv_weight, {4});
  p.qr = over(qr, {1, 2});
  p.kv = over(kv, {1, 4});
  run(exact_lane(), AS_OP_Q_KV_NORM, p);
  EXPECT_NEAR(qr[0], 3 / std::sqrt(12.5), 1e-15);
  EXPECT_NEAR(kv[3], 4, 1e-15);
}

TEST(Residual, MayWriteOverItsInput) {
  std::vector<bf16_t> h = to_bf16({1, 256, -3});
  std::vector<bf16_t> y = to_bf16({0.5, 1, 3});
  auto p = new_params<as_residual_params>();
  p.h = over(h, {1, 3});
  p.y = over(y, {1, 3});
  p.out = p.h;
  run(sim_lane(), AS_OP_RESIDUAL, p);
  EXPECT_EQ(bf16_value(h[0].bits), 1.5);
  EXPECT_EQ(bf16_value(h[1].bits), 256);  // 257 is a tie
  EXPECT_EQ(bf16_value(h[2].bits), 0);
}

// q is normalised per head without weight and rotated; inverse_rope undoes the rotation.
TEST(QRopeKvInsert, InverseRopeUndoesTheRotation) {
  const int tokens = 3;
  const int heads = 2;
  Doubles q_raw = normal(tokens * heads * 512, 1);
  Doubles kv = normal(tokens * 512, 2);
  Int64s positions = {0, 100, 5000};
  Int64s slots = {1, -1, 0};
  Doubles q(q_raw.size()), out(q_raw.size()), kv_row(kv.size(), -7.0), cache(2 * 512, -7.0);
  auto p = new_params<as_q_rope_kv_insert_params>();
  p.q_raw = over(q_raw, {tokens, heads, 512});
  p.kv = over(kv, {tokens, 512});
  p.positions = over(positions, {tokens});
  p.slots = over(slots, {tokens});
  p.rope = plain_rope();
  p.q = over(q, {tokens, heads, 512});
  p.kv_row = over(kv_row, {tokens, 512});
  p.cache = logical(cache, AS_RECORD_LATENT, 512, 512);
  p.eps = 0;
  run(exact_lane(), AS_OP_Q_ROPE_KV_INSERT, p);

  auto inverse = new_params<as_inverse_rope_params>();
  inverse.o = p.q;
  inverse.positions = p.positions;
  inverse.rope = p.rope;
  inverse.out = over(out, {tokens, heads, 512});
  run(exact_lane(), AS_OP_INVERSE_ROPE, inverse);
  for (std::size_t i = 0; i < 6; ++i) {
    double sum = 0;
    for (std::size_t d = 0; d < 512; ++d) sum += q_raw[i * 512 + d] * q_raw[i * 512 + d];
    for (std::size_t d = 0; d < 512; ++d) {
      EXPECT_NEAR(out[i * 512 + d] * std::sqrt(sum / 512), q_raw[i * 512 + d], 1e-13);
    }
  }
  for (std::size_t d = 0; d < 512; ++d) {
    EXPECT_EQ(kv_row[512 + d], -7);  // slot -1
    EXPECT_EQ(cache[512 + d], kv_row[d]);
    EXPECT_EQ(cache[d], kv_row[1024 + d]);
    EXPECT_NEAR(kv_row[d], kv[d], d < 448 ? 0 : 1e-15);  // position 0
  }

  // ref.sim: the row in bf16, the cache within the quantiser's bound of it.
  std::vector<Byte> records(2 * 584);
  p.cache = logical(records, AS_RECORD_LATENT, 512, 584);
  run(sim_lane(), AS_OP_Q_ROPE_KV_INSERT, p);
  for (std::size_t d = 0; d < 448; ++d) {
    const double row = kv_row[1024 + d];
    EXPECT_EQ(row, round_to_bf16(kv[1024 + d]));
    const double scale = ue8m0_value(records[576 + d / 64]);
    EXPECT_LE(std::fabs(e4m3_value(records[d]) * scale - row), 16 * scale);
  }
}

}  // namespace dense_test
}  // namespace attnscope::reference
