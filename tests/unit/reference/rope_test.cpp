#include "reference/rope.h"

#include <cmath>

#include "tests/unit/reference/lane_test.h"
#include "tests/unit/reference/plain_codec.h"

namespace attnscope::reference {
namespace rope_test {

// Equal to the eight digits printed.
void expect_digits(double value, double printed) {
  EXPECT_NEAR(value / printed, 1, 5.1e-8) << value << " " << printed;
}

TEST(RopeFrequencies, CompressedLayers) {
  const double expected[32] = {
      1.0000000e+00, 6.8765602e-01, 4.7287080e-01, 3.2517246e-01, 2.2360680e-01, 1.5376456e-01,
      1.0573713e-01, 7.2710772e-02, 5.0000000e-02, 3.4382801e-02, 2.3643540e-02, 1.6258623e-02,
      1.1180340e-02, 7.6882281e-03, 5.2868563e-03, 3.6355386e-03, 2.2656250e-03, 1.3968013e-03,
      8.4968973e-04, 5.0808196e-04, 2.9697778e-04, 1.6817999e-04, 9.0867843e-05, 4.5444232e-05,
      1.9531250e-05, 5.3723127e-06, 3.6943032e-06, 2.5404098e-06, 1.7469281e-06, 1.2012856e-06,
      8.2607130e-07, 5.6805290e-07};
  const auto f = rope_frequencies(compress_rope());
  for (std::size_t i = 0; i < 32; ++i) expect_digits(f[i], expected[i]);
}

TEST(RopeFrequencies, SwaLayers) {
  const double octave[8] = {1.0000000e+00, 7.4989421e-01, 5.6234133e-01, 4.2169650e-01,
                            3.1622777e-01, 2.3713737e-01, 1.7782794e-01, 1.3335214e-01};
  const auto f = rope_frequencies(plain_rope());
  for (std::size_t i = 0; i < 32; ++i) {
    const std::size_t decade = i / 8;
    expect_digits(f[i], octave[i % 8] * std::pow(10.0, -static_cast<double>(decade)));
  }
}

TEST(RopeFrequencies, SwaLayersWithYarn) {
  as_rope rope = plain_rope();
  rope.factor = 16;
  const auto plain = rope_frequencies(plain_rope());
  const auto f = rope_frequencies(rope);
  for (std::size_t i = 0; i <= 20; ++i) EXPECT_EQ(f[i], plain[i]);
  expect_digits(f[21], 2.2003612e-03);
  expect_digits(f[24], 7.1153846e-04);
  expect_digits(f[31], 2.7567991e-05);
}

TEST(RopeRow, Fp32TableRowHoldsBinary32Values) {
  const auto f = rope_frequencies(compress_rope());
  for (std::int64_t t : {0, 1, 700, 65536, 1048575}) {
    const RopeRow row = rope_row(f, t, false);
    const RopeRow exact = rope_row(f, t, true);
    const double bound = 1e-7 + static_cast<double>(t) * 1e-7;
    for (std::size_t i = 0; i < 32; ++i) {
      EXPECT_EQ(row.cos[i], static_cast<float>(row.cos[i]));
      EXPECT_NEAR(row.cos[i], exact.cos[i], bound);
      EXPECT_NEAR(row.sin[i], exact.sin[i], bound);
    }
  }
}

// A table is data: both references take it as it is, whatever the numbers beside it say.
TEST(RopeTable, IsTakenAsItIsGiven) {
  std::vector<float> table(3 * 64);
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = 0.25F * static_cast<float>(i % 7) - 1;
  Doubles o = normal(2 * 512, 3), out(o.size());
  Int64s positions = {2, 0};
  auto p = new_params<as_inverse_rope_params>();
  p.o = over(o, {2, 1, 512});
  p.out = over(out, {2, 1, 512});
  p.positions = over(positions, {2});
  p.rope = compress_rope();
  p.rope.table = over(table, {3, 64});
  run(exact_lane(), AS_OP_INVERSE_ROPE, p);
  for (std::size_t t = 0; t < 2; ++t) {
    const float* row = table.data() + 64 * positions[t];
    for (std::size_t i = 0; i < 32; ++i) {
      const std::size_t at = 512 * t + 448 + 2 * i;
      const double c = row[i], s = row[32 + i];
      EXPECT_EQ(out[at], o[at] * c - o[at + 1] * -s);
      EXPECT_EQ(out[at + 1], o[at] * -s + o[at + 1] * c);
    }
  }
  const Doubles exact = out;
  run(sim_lane(), AS_OP_INVERSE_ROPE, p);
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], round_to_bf16(exact[i]));
  positions[1] = 3;
  expect_refused(AS_OP_INVERSE_ROPE, p, {"position 3", "rows 0 to 2"});
}

TEST(Rope, PairsTurnByTheirAngleAndBack) {
  Doubles kv = normal(512, 1), row(512), back(512), q(512), cache(512);
  Int64s positions = {5}, slots = {0};
  auto p = new_params<as_q_rope_kv_insert_params>();
  p.q_raw = p.q = over(q, {1, 1, 512});
  p.kv = over(kv, {1, 512});
  p.kv_row = over(row, {1, 512});
  p.positions = over(positions, {1});
  p.slots = over(slots, {1});
  p.cache = logical(cache, AS_RECORD_LATENT, 512, 512);
  p.rope = plain_rope();
  run(exact_lane(), AS_OP_Q_ROPE_KV_INSERT, p);
  for (std::size_t i = 0; i < 448; ++i) EXPECT_EQ(row[i], kv[i]);
  const double angle = 5 * rope_frequencies(plain_rope())[3];
  const double a = kv[454], b = kv[455];
  EXPECT_NEAR(row[454], a * std::cos(angle) - b * std::sin(angle), 1e-14);
  EXPECT_NEAR(row[455], a * std::sin(angle) + b * std::cos(angle), 1e-14);

  auto inverse = new_params<as_inverse_rope_params>();
  inverse.o = over(row, {1, 1, 512});
  inverse.out = over(back, {1, 1, 512});
  inverse.positions = p.positions;
  inverse.rope = p.rope;
  run(exact_lane(), AS_OP_INVERSE_ROPE, inverse);
  for (std::size_t i = 0; i < 512; ++i) EXPECT_NEAR(back[i], kv[i], 1e-14);
}

// At position 0 nothing is rotated before it.
TEST(Hadamard, IsTheNormalisedSylvesterMatrix) {
  for (std::size_t column : {0U, 1U, 5U, 127U}) {
    Doubles x(128, 0.0), out(128), weight(1);
    Int64s positions = {0};
    x[column] = 1;
    auto p = new_params<as_indexer_q_params>();
    p.q_raw = over(x, {1, 1, 128});
    p.weights_raw = p.weights = over(weight, {1, 1});
    p.positions = over(positions, {1});
    p.rope = plain_rope();
    p.q = over(out, {1, 1, 128});
    p.format = AS_RECORD_INDEX_FP8;
    p.hadamard = AS_HADAMARD_ON;
    run(exact_lane(), AS_OP_INDEXER_Q, p);
    for (std::size_t i = 0; i < 128; ++i) {
      const int sign = __builtin_popcountll(i & column) % 2 == 0 ? 1 : -1;
      EXPECT_NEAR(out[i], sign / std::sqrt(128.0), 1e-15);
    }
  }
}

}  // namespace rope_test
}  // namespace attnscope::reference
