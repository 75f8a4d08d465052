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

// What is stored past the caches has the bytes of small calls: a token alone, with one thread.
TEST(StreamedHeads, AreThoseOfTokensAlone) {
  constexpr std::int64_t kTokens = 257, kHeads = 65;  // 17 MB
  Random random(14);
  Array<bf16_t> x({kTokens, kHeads, 512}), y({kTokens, kHeads, 512}), z({kTokens, kHeads, 512});
  Array<bf16_t> kv({kTokens, 512}), one({1, kHeads, 512});
  for (bf16_t& v : x.values) v.bits = static_cast<std::uint16_t>(random() >> 32 & 0xbfff);
  fill_normal(kv, random);
  Array<std::int64_t> positions({kTokens}), slots({kTokens}, std::int64_t{-1});
  for (std::int64_t t = 0; t < kTokens; ++t) positions[t] = 11 * t;
  Rope rope(3000);
  PagedCache cache(AS_RECORD_LATENT, 512, 64, 1);
  auto q = make_params<as_q_rope_kv_insert_params>();
  q.q_raw = x.tensor;
  q.kv = kv.tensor;
  q.positions = positions.tensor;
  q.slots = slots.tensor;
  q.rope = rope.view();
  q.q = y.tensor;
  q.cache = cache.view();
  q.eps = 1e-6;
  auto o = make_params<as_inverse_rope_params>();
  o.o = x.tensor;
  o.positions = positions.tensor;
  o.rope = rope.view();
  o.out = z.tensor;
  cpu::ThreadPool pool(2);
  EXPECT_OK(run(AS_OP_Q_ROPE_KV_INSERT, q, pool.handle()));
  EXPECT_OK(run(AS_OP_INVERSE_ROPE, o, pool.handle()));
  const auto token_of = [](Array<bf16_t>& all, std::int64_t t) {
    return make_tensor(all.values.data() + t * kHeads * 512, {1, kHeads, 512});
  };
  for (std::int64_t t = 0; t < kTokens; t += 16) {
    q.q_raw = o.o = token_of(x, t);
    q.kv = make_tensor(&kv[t * 512], {1, 512});
    q.positions = o.positions = make_tensor(&positions[t], {1});
    q.slots = make_tensor(&slots[t], {1});
    q.q = o.out = one.tensor;
    for (Array<bf16_t>* const whole : {&y, &z}) {
      EXPECT_OK(whole == &y ? run(AS_OP_Q_ROPE_KV_INSERT, q) : run(AS_OP_INVERSE_ROPE, o));
      ASSERT_EQ(std::memcmp(token_of(*whole, t).data, one.values.data(), kHeads * 1024), 0) << t;
    }
  }
}

TEST(InverseRope, OddWidthsAndStrides) {
  Random random(15);
  Rope rope(3000);
  for (const std::int64_t width : {64, 66, 95, 128, 200, 513}) {
    constexpr std::int64_t kTokens = 3, kHeads = 5, kPad = 3;
    const std::int64_t stride = width + kPad;
    Array<bf16_t> o({kTokens, kHeads, stride}), out({kTokens, kHeads, stride}, bf16_t{0x5555});
    Array<std::int64_t> positions({kTokens}, {0, 999, 2999});
    fill_normal(o, random);
    o[0].bits = 0x7f81;  // a NaN that signals is copied
    auto p = make_params<as_inverse_rope_params>();
    p.o = o.tensor;
    p.out = out.tensor;
    p.o.shape[2] = p.out.shape[2] = width;
    p.positions = positions.tensor;
    p.rope = rope.view();
    EXPECT_OK(run(AS_OP_INVERSE_ROPE, p));
    for (std::int64_t row = 0; row < kTokens * kHeads; ++row) {
      std::vector<double> x;
      for (std::int64_t i = 0; i < width; ++i) x.push_back(double{to_float(o[row * stride + i])});
      rotate_exact(x, rope.view(), positions[row / kHeads], -1.0);
      for (std::int64_t i = 0; i < stride; ++i) {
        const bf16_t got = out[row * stride + i];
        if (i >= width) {
          ASSERT_EQ(got.bits, 0x5555);
        } else if (i < width - 64) {
          ASSERT_EQ(got.bits, o[row * stride + i].bits);
        } else if (width > 64 || row > 0) {  // else the NaN is turned
          ASSERT_LE(bf16_steps(got, x[static_cast<std::size_t>(i)]), 1) << width << ", " << i;
        }
      }
    }
  }
}

// Heads whose numbers are none, beside heads that are whole: each by itself.
TEST(QRopeKvInsert, InfiniteAndNanHeadsLeaveOthersAlone) {
  Insert clean, dirty;
  const float inf = std::numeric_limits<float>::infinity();
  const float special[] = {inf, std::numeric_limits<float>::quiet_NaN(), 3e38f, 1e-40f};
  for (std::int64_t t = 0; t < 4; ++t) {
    for (std::int64_t i = 0; i < 512; ++i) clean.q_raw[t * 3 * 512 + i] = to_bf16(0.0f);
    for (std::int64_t i = 0; i < 512; ++i) dirty.q_raw[t * 3 * 512 + i] = to_bf16(0.0f);
    dirty.q_raw[t * 3 * 512 + 40 * t + 7] = to_bf16(special[t]);
  }
  EXPECT_OK(run(AS_OP_Q_ROPE_KV_INSERT, clean.params()));
  EXPECT_OK(run(AS_OP_Q_ROPE_KV_INSERT, dirty.params()));
  for (std::int64_t t = 0; t < Insert::kTokens; ++t) {
    for (std::int64_t i = (t < 4 ? 512 : 0); i < 3 * 512; ++i) {
      ASSERT_EQ(dirty.q[t * 3 * 512 + i].bits, clean.q[t * 3 * 512 + i].bits) << t << ", " << i;
    }
  }
  // 0 x inf = NaN; beside a NaN all are; a sum that overflows leaves 0.
  EXPECT_EQ(to_float(dirty.q[0]), 0.0f);
  EXPECT_TRUE(std::isnan(to_float(dirty.q[7])));
  EXPECT_TRUE(std::isnan(to_float(dirty.q[3 * 512])));
  EXPECT_EQ(to_float(dirty.q[2 * 3 * 512 + 87]), 0.0f);
  EXPECT_EQ(dirty.q[3 * 3 * 512 + 127].bits, to_bf16(1e3f * cpu::round_bf16(1e-40f)).bits);
}

}  // namespace insert_test
}  // namespace attnscope::kernel_tests
