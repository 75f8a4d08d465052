// AS_OP_Q_ROPE_KV_INSERT and AS_OP_INVERSE_ROPE.
#include <algorithm>
#include <cmath>

#include "tests/property/checks.h"

namespace attnscope::properties {
namespace {

// Of a rotated value against float64: the fp32 table's angle t * f is off by at most t * f * 2^-23,
// below 2^-11 for t < 4096, times the pair's length; one rounding to bf16.
double rotation_bound(double value, double pair_length) {
  return 2 * kBf16Half * std::fabs(value) + 0x1p-11 * pair_length;
}

// Length of the rotated pair that a column belongs to; 0 for columns that are not rotated.
double pair_length(const as_tensor& t, std::int64_t row, std::int64_t column) {
  const std::int64_t dim = t.shape[t.rank - 1];
  if (column < dim - AS_ROPE_DIM) return 0;
  const std::int64_t even = column - column % 2;
  return std::hypot(element(t, row, even), element(t, row, even + 1));
}

void judge_rotated(const std::string& tap, const as_tensor& value, const as_tensor& exact,
                   const std::int64_t* slots, Report* report) {
  judge_bound(
      tap, value, exact, slots,
      [&](std::int64_t row, std::int64_t column, double v) {
        return rotation_bound(v, pair_length(exact, row, column)) + 0x1p-133;
      },
      report);
}

}  // namespace

Report check_insert(const Lane& lane, const InsertCase& c) {
  Report report(case_seed("insert " + c.name));
  Random random(report.seed());
  Memory memory;
  const Tokens tokens = last_tokens(c.lengths, c.queries);
  const std::int64_t n = tokens.size();
  TwinCache cache(AS_RECORD_LATENT, AS_HEAD_DIM, c.lengths, c.pages, random);
  OpParams engine;
  auto& p = engine.init<as_q_rope_kv_insert_params>(AS_OP_Q_ROPE_KV_INSERT);
  p.q_raw = memory.normals(AS_BF16, {n, c.heads, AS_HEAD_DIM}, random, c.scale, c.pad);
  p.kv = memory.normals(AS_BF16, {n, AS_HEAD_DIM}, random, c.scale, c.pad);
  p.positions = memory.ints64(tokens.positions);
  p.rope = c.compressed_rope ? compressed_rope() : plain_rope();
  std::vector<std::int64_t> slots;
  for (std::int64_t t = 0; t < n; ++t) {
    const auto i = static_cast<std::size_t>(t);
    const bool padding = n > 2 && t % 4 == 3;
    slots.push_back(padding ? -1 : cache.slot(tokens.token_to_req[i], tokens.positions[i]));
  }
  p.slots = memory.ints64(slots);
  p.q = memory.make(AS_BF16, {n, c.heads, AS_HEAD_DIM}, c.pad);
  p.kv_row = memory.make(AS_BF16, {n, AS_HEAD_DIM}, c.pad);
  p.cache = cache.paged();
  p.eps = 1e-6;
  p.q_norm = c.q_norm;
  const std::vector<unsigned char> before = cache.slab();
  if (!run(lane, engine, &report)) return report;
  memory.check_guards(&report);

  OpParams sim = with_own_outputs(engine, &memory);
  auto& s = sim.get<as_q_rope_kv_insert_params>();
  RowsOut out = rows_out(p.cache, p.slots, false, &memory);
  s.cache = out.cache;
  s.slots = out.slots;
  if (!run(*reference::sim_lane(), sim, &report)) return report;
  judge_all(engine, sim, &report);

  // The bytes, given the lane's own row.
  OpParams given = sim;
  auto& g = given.get<as_q_rope_kv_insert_params>();
  g.kv_row = p.kv_row;
  g.rows_given = 1;
  g.cache = rows_out(p.cache, p.slots, false, &memory).cache;
  if (!run(*reference::sim_lane(), given, &report)) return report;
  judge_slab(cache, before, p.slots, g.cache.data, &report);

  OpParams exact = with_own_outputs(sim, &memory);
  auto& e = exact.get<as_q_rope_kv_insert_params>();
  e.cache = rows_out(p.cache, p.slots, true, &memory).cache;
  if (!run(*reference::exact_lane(), exact, &report)) return report;
  // Norms that round on the way: half a step each of square, mean, mean + eps and factor at most,
  // then of the product, which the rotation mixes with its pair's other half.
  judge_bound(
      "q against ref.exact", p.q, e.q, nullptr,
      [&](std::int64_t row, std::int64_t column, double v) {
        const double pair = pair_length(e.q, row, column);
        const double norm = c.q_norm == AS_Q_NORM_FP32 ? 0 : 8 * kBf16Half;
        return rotation_bound(v, pair) + norm * std::max(std::fabs(v), pair) + 0x1p-133;
      },
      &report);
  judge_rotated("kv_row against ref.exact", p.kv_row, e.kv_row, slots.data(), &report);
  as_tensor read = memory.make(AS_F64, {n, AS_HEAD_DIM});
  for (std::int64_t t = 0; t < n; ++t) {
    if (slots[static_cast<std::size_t>(t)] < 0) continue;
    const std::vector<double> row = cache.decoded(slots[static_cast<std::size_t>(t)]);
    std::copy(row.begin(), row.end(), at<double>(read, t));
  }
  judge_bound(
      "cache against ref.exact", read, e.cache.data, slots.data(),
      [&](std::int64_t row, std::int64_t column, double v) {
        const double amax = block_amax(AS_RECORD_LATENT, column, at<double>(e.cache.data, row));
        return rotation_bound(v, pair_length(e.cache.data, row, column)) + 0x1p-133 +
               quantisation_step(AS_RECORD_LATENT, column, v * (1 + kBf16Half),
                                 amax * (1 + kBf16Half));
      },
      &report);
  return report;
}

namespace {

class InsertProperty : public testing::TestWithParam<InsertCase> {};

TEST_P(InsertProperty, MatchesBothReferences) {
  const Report report = check_insert(*cpu::lane(), GetParam());
  EXPECT_TRUE(report.ok()) << report;
}

const InsertCase kInsertCases[] = {
    {"no_tokens", {0}, 1, 8},
    {"first_token", {1}, 1, 1, {64, 0}, 1.0f, false, 3},
    {"mixed_lengths", {3, 0, 4, 127, 1}, 5, 8, {53, 7}, 1.0f, true, 1},
    {"one_row_pages", {128, 129}, 2, 64, {1, 100}, 3.0f, false, 0},
    {"odd_pages", {255, 256}, 5, 8, {3, 577}, 0.01f, true, 8},
    {"far_positions", {2050, 2051}, 5, 8, {61, 0}, 1.0f, true, 0},
    {"far_positions_plain", {2051}, 2, 1, {2, 1152}, 100.0f, false, 0},
    {"zeros", {129, 2}, 2, 8, {64, 0}, 0.0f},
    {"below_the_scale_floor", {129, 2}, 2, 8, {64, 64}, 1e-6f},
    {"huge", {130, 5}, 3, 1, {53, 0}, 1e15f},
    {"norm_in_bf16", {129, 2051}, 5, 8, {64, 0}, 1.0f, true, 3, AS_Q_NORM_BF16},
    {"norm_in_bf16_large", {257}, 3, 64, {64, 0}, 300.0f, false, 0, AS_Q_NORM_BF16},
    {"norm_in_bf16_zeros", {5}, 3, 8, {64, 0}, 0.0f, false, 0, AS_Q_NORM_BF16},
    {"norm_by_a_bf16_factor", {129, 2051}, 5, 8, {64, 0}, 1.0f, true, 3, AS_Q_NORM_BF16_FACTOR},
    {"norm_by_a_bf16_factor_small", {65}, 3, 8, {64, 0}, 0.01f, false, 0, AS_Q_NORM_BF16_FACTOR},
};
INSTANTIATE_TEST_SUITE_P(Shapes, InsertProperty, testing::ValuesIn(kInsertCases),
                         name_of<InsertCase>);

// Rows of arbitrary bits, NaN, infinities and denormals among them: the bytes are still the same.
class InsertRows : public testing::TestWithParam<std::int32_t> {};

TEST_P(InsertRows, AnyBitsGiveTheBytesOfTheReference) {
  Report report(case_seed("insert any bits"));
  Random random(report.seed());
  Memory memory;
  const std::vector<std::int64_t> lengths = {67, 3, 200};
  const Tokens tokens = last_tokens(lengths, 200);
  TwinCache cache(AS_RECORD_LATENT, AS_HEAD_DIM, lengths, {53, 9}, random);
  OpParams engine;
  auto& p = engine.init<as_q_rope_kv_insert_params>(AS_OP_Q_ROPE_KV_INSERT);
  p.kv_row = memory.make(AS_BF16, {tokens.size(), AS_HEAD_DIM});
  p.rows_given = 1;
  p.scale_floor = GetParam();
  std::vector<std::int64_t> slots;
  for (std::int64_t t = 0; t < tokens.size(); ++t) {
    const auto i = static_cast<std::size_t>(t);
    slots.push_back(cache.slot(tokens.token_to_req[i], tokens.positions[i]));
    const auto exponent = static_cast<unsigned>(below(random, 256));
    for (std::int64_t d = 0; d < AS_HEAD_DIM; ++d) {
      auto bits = static_cast<std::uint16_t>(random());
      // Most rows keep to a few exponents, so that codes are neither all zero nor all saturated.
      if (t % 5 != 0) {
        const unsigned near = std::min(255u, exponent + (bits >> 7 & 7u));
        bits = static_cast<std::uint16_t>((bits & 0x807fu) | near << 7);
      }
      at<bf16_t>(p.kv_row, t, d)->bits = bits;
    }
  }
  p.slots = memory.ints64(slots);
  p.cache = cache.paged();
  const std::vector<unsigned char> before = cache.slab();
  ASSERT_TRUE(run(*cpu::lane(), engine, &report)) << report;
  OpParams sim = engine;
  auto& s = sim.get<as_q_rope_kv_insert_params>();
  const RowsOut out = rows_out(p.cache, p.slots, false, &memory);
  s.cache = out.cache;
  s.slots = out.slots;
  ASSERT_TRUE(run(*reference::sim_lane(), sim, &report)) << report;
  judge_slab(cache, before, p.slots, s.cache.data, &report);
  EXPECT_TRUE(report.ok()) << report;
}

INSTANTIATE_TEST_SUITE_P(ScaleFloors, InsertRows,
                         testing::Values(AS_SCALE_FLOOR_1E4, AS_SCALE_FLOOR_1E8));

class InverseRopeProperty : public testing::TestWithParam<InsertCase> {};

TEST_P(InverseRopeProperty, MatchesBothReferences) {
  const InsertCase& c = GetParam();
  Report report(case_seed("inverse_rope " + c.name));
  Random random(report.seed());
  Memory memory;
  const Tokens tokens = last_tokens(c.lengths, c.queries);
  OpParams engine;
  auto& p = engine.init<as_inverse_rope_params>(AS_OP_INVERSE_ROPE);
  p.o = memory.normals(AS_BF16, {tokens.size(), c.heads, AS_HEAD_DIM}, random, c.scale, c.pad);
  p.positions = memory.ints64(tokens.positions);
  p.rope = c.compressed_rope ? compressed_rope() : plain_rope();
  p.out = memory.make(AS_BF16, {tokens.size(), c.heads, AS_HEAD_DIM}, c.pad);
  ASSERT_TRUE(run(*cpu::lane(), engine, &report)) << report;
  memory.check_guards(&report);
  const OpParams sim = with_own_outputs(engine, &memory);
  ASSERT_TRUE(run(*reference::sim_lane(), sim, &report)) << report;
  judge_all(engine, sim, &report);
  const OpParams exact = with_own_outputs(engine, &memory);
  ASSERT_TRUE(run(*reference::exact_lane(), exact, &report)) << report;
  judge_rotated("out against ref.exact", p.out, exact.get<as_inverse_rope_params>().out, nullptr,
                &report);
  EXPECT_TRUE(report.ok()) << report;
}

INSTANTIATE_TEST_SUITE_P(Shapes, InverseRopeProperty, testing::ValuesIn(kInsertCases),
                         name_of<InsertCase>);

}  // namespace
}  // namespace attnscope::properties
