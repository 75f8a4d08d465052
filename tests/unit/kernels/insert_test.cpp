// q_rope_kv_insert and inverse_rope.
#include <limits>

#include "tests/unit/kernels/support.h"

namespace attnscope::kernel_tests {
namespace insert_test {

// Rotation of the last 64 of n values in float64, with the fp32 table.
void rotate_exact(std::vector<double>& x, const as_rope& rope, std::int64_t position, double sign) {
  const float* row = at<float>(rope.table, position);
  const std::size_t first = x.size() - 64;
  for (std::size_t i = 0; i < 32; ++i) {
    const double c = static_cast<double>(row[i]);
    const double s = sign * static_cast<double>(row[32 + i]);
    const double e = x[first + 2 * i], o = x[first + 2 * i + 1];
    x[first + 2 * i] = e * c - o * s;
    x[first + 2 * i + 1] = o * c + e * s;
  }
}

struct Insert {
  static constexpr std::int64_t kTokens = 5, kHeads = 3;
  Array<bf16_t> q_raw{{kTokens, kHeads, 512}}, kv{{kTokens, 512}}, q{{kTokens, kHeads, 512}},
      kv_row{{kTokens, 512}};
  Array<std::int64_t> positions{{kTokens}, {0, 1, 63, 64, 2999}};
  Array<std::int64_t> slots{{kTokens}, {70, -1, 64, 191, 127}};
  Rope rope{3000};
  PagedCache cache{AS_RECORD_LATENT, 512, 64, 3};

  Insert() {
    Random random(11);
    fill_normal(q_raw, random, 2.0f);
    fill_normal(kv, random);
  }
  as_q_rope_kv_insert_params params() {
    auto p = make_params<as_q_rope_kv_insert_params>();
    p.q_raw = q_raw.tensor;
    p.kv = kv.tensor;
    p.positions = positions.tensor;
    p.rope = rope.view();
    p.slots = slots.tensor;
    p.q = q.tensor;
    p.kv_row = kv_row.tensor;
    p.cache = cache.view();
    p.eps = 1e-6;
    return p;
  }
};

TEST(QRopeKvInsert, QueriesAndRowsWithinOneUlp) {
  Insert s;
  EXPECT_OK(run(AS_OP_Q_ROPE_KV_INSERT, s.params()));
  for (std::int64_t t = 0; t < Insert::kTokens; ++t) {
    std::vector<double> row(512);
    for (std::int64_t i = 0; i < 512; ++i)
      row[i] = static_cast<double>(to_float(s.kv[t * 512 + i]));
    rotate_exact(row, s.rope.view(), s.positions[t], 1.0);
    for (std::int64_t i = 0; i < 512; ++i) {
      ASSERT_LE(bf16_steps(s.kv_row[t * 512 + i], row[i]), 1);
    }
    for (std::int64_t h = 0; h < Insert::kHeads; ++h) {
      const std::int64_t base = (t * Insert::kHeads + h) * 512;
      double sum = 0.0;
      std::vector<double> q(512);
      for (std::int64_t i = 0; i < 512; ++i) {
        q[i] = static_cast<double>(to_float(s.q_raw[base + i]));
        sum += q[i] * q[i];
      }
      for (double& v : q) v /= std::sqrt(sum / 512 + 1e-6);
      rotate_exact(q, s.rope.view(), s.positions[t], 1.0);
      for (std::int64_t i = 0; i < 512; ++i) ASSERT_LE(bf16_steps(s.q[base + i], q[i]), 1) << i;
    }
  }
}

TEST(QRopeKvInsert, CacheRowsAreTheQuantisedRows) {
  Insert s;
  EXPECT_OK(run(AS_OP_Q_ROPE_KV_INSERT, s.params()));
  EXPECT_TRUE(s.cache.guards_intact());
  PagedCache expected(AS_RECORD_LATENT, 512, 64, 3);
  for (std::int64_t t = 0; t < Insert::kTokens; ++t) {
    if (s.slots[t] < 0) continue;
    std::vector<float> row(512);
    for (std::int64_t i = 0; i < 512; ++i) row[i] = to_float(s.kv_row[t * 512 + i]);
    expected.put(s.slots[t], row.data());
  }
  EXPECT_EQ(s.cache.bytes(), expected.bytes());  // and no other row was touched
}

TEST(QRopeKvInsert, WithheldRowsGiveTheSameBytes) {
  Insert with, without;
  EXPECT_OK(run(AS_OP_Q_ROPE_KV_INSERT, with.params()));
  auto p = without.params();
  p.kv_row = no_tensor();
  EXPECT_OK(run(AS_OP_Q_ROPE_KV_INSERT, p));
  EXPECT_EQ(with.cache.bytes(), without.cache.bytes());
}

TEST(QRopeKvInsert, RowsGivenOnlyInserts) {
  Insert made, given;
  EXPECT_OK(run(AS_OP_Q_ROPE_KV_INSERT, made.params()));
  auto p = make_params<as_q_rope_kv_insert_params>();
  p.slots = given.slots.tensor;
  p.kv_row = made.kv_row.tensor;
  p.cache = given.cache.view();
  p.rows_given = 1;
  EXPECT_OK(run(AS_OP_Q_ROPE_KV_INSERT, p));
  EXPECT_EQ(made.cache.bytes(), given.cache.bytes());
}

TEST(QRopeKvInsert, WritesLogicalRows) {
  Insert s;
  std::vector<std::uint8_t> bytes(200 * 584, 0xa5);
  auto p = s.params();
  p.cache.addressing = AS_LOGICAL;
  p.cache.rows_per_block = 0;
  p.cache.data = make_tensor(bytes.data(), {200, 584});
  EXPECT_OK(run(AS_OP_Q_ROPE_KV_INSERT, p));
  for (std::int64_t t = 0; t < Insert::kTokens; ++t) {
    if (s.slots[t] < 0) continue;
    std::vector<float> row(512), back(512);
    for (std::int64_t i = 0; i < 512; ++i) row[i] = to_float(s.kv_row[t * 512 + i]);
    unsigned char payload[576], scales[8];
    cpu::quantise_row(AS_RECORD_LATENT, 512, row.data(), payload, scales);
    EXPECT_EQ(std::memcmp(&bytes[static_cast<std::size_t>(s.slots[t] * 584)], payload, 576), 0);
    EXPECT_EQ(std::memcmp(&bytes[static_cast<std::size_t>(s.slots[t] * 584 + 576)], scales, 8), 0);
  }
}

// Every code path of the bulk quantiser against the scalar one: special values included.
TEST(QRopeKvInsert, SpecialValuesQuantiseLikeTheScalarCodec) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Random random(12);
  for (float special : {0.0f, -0.0f, 1e-30f, -1e-6f, 3e38f, inf, -inf, nan, -nan, 448.0f}) {
    Array<bf16_t> rows({1, 512});
    fill_normal(rows, random);
    for (std::int64_t i = 0; i < 64; ++i) rows[i] = to_bf16(special);
    rows[100] = to_bf16(special);
    Array<std::int64_t> slots({1}, {1});
    PagedCache cache(AS_RECORD_LATENT, 512, 2, 1), expected(AS_RECORD_LATENT, 512, 2, 1);
    auto p = make_params<as_q_rope_kv_insert_params>();
    p.slots = slots.tensor;
    p.kv_row = rows.tensor;
    p.cache = cache.view();
    p.rows_given = 1;
    EXPECT_OK(run(AS_OP_Q_ROPE_KV_INSERT, p));
    std::vector<float> row(512);
    for (std::int64_t i = 0; i < 512; ++i) row[i] = to_float(rows[i]);
    expected.put(1, row.data());
    EXPECT_EQ(cache.bytes(), expected.bytes()) << special;
  }
}

TEST(InverseRope, UndoesTheRotation) {
  Random random(13);
  Array<bf16_t> o({2, 3, 512}), out({2, 3, 512});
  Array<std::int64_t> positions({2}, {17, 2500});
  Rope rope(3000);
  fill_normal(o, random);
  auto p = make_params<as_inverse_rope_params>();
  p.o = o.tensor;
  p.positions = positions.tensor;
  p.rope = rope.view();
  p.out = out.tensor;
  EXPECT_OK(run(AS_OP_INVERSE_ROPE, p));
  for (std::int64_t row = 0; row < 6; ++row) {
    std::vector<double> x(512);
    for (std::int64_t i = 0; i < 512; ++i) x[i] = static_cast<double>(to_float(o[row * 512 + i]));
    rotate_exact(x, rope.view(), positions[row / 3], -1.0);
    for (std::int64_t i = 0; i < 448; ++i)
      ASSERT_EQ(out[row * 512 + i].bits, o[row * 512 + i].bits);
    for (std::int64_t i = 448; i < 512; ++i) ASSERT_LE(bf16_steps(out[row * 512 + i], x[i]), 1);
  }
}

}  // namespace insert_test
}  // namespace attnscope::kernel_tests
