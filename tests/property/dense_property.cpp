// Dense ops: AS_OP_ATTN_NORM, AS_OP_FINAL_NORM, AS_OP_Q_KV_NORM, the projections
// (AS_OP_Q_KV_A_PROJ, AS_OP_Q_B_PROJ, AS_OP_COMPRESSOR_PROJ, AS_OP_INDEXER_COMPRESSOR_PROJ,
// AS_OP_INDEXER_Q_PROJ, AS_OP_INDEXER_WEIGHTS_PROJ, AS_OP_WO_B, AS_OP_LM_HEAD), AS_OP_WO_A,
// AS_OP_RESIDUAL, and those of a draft layer (AS_OP_DRAFT_NORM, AS_OP_DRAFT_H_PROJ,
// AS_OP_DRAFT_E_PROJ, AS_OP_DRAFT_SUM).
#include <algorithm>
#include <cmath>
#include <string>

#include "tests/property/checks.h"

namespace attnscope::properties {
namespace dense_property {

// Half a step of bf16 (8 significant bits) is at most 2^-8 of the value; 2^-8 more of that for an
// fp32 result beside a boundary.
constexpr double kBf16 = 0x1.01p-8;
constexpr double kF32 = 0x1p-24;
constexpr double kTiny = 0x1p-133;  // half a step of the smallest bf16

// Runs a lane and ref.sim, judges all taps by their class; gives back the params of ref.exact.
bool run_all(const Lane& lane, const OpParams& engine, Memory* memory, OpParams* exact,
             Report* report) {
  if (!run(lane, engine, report)) return false;
  memory->check_guards(report);
  const OpParams sim = with_own_outputs(engine, memory);
  if (!run(*reference::sim_lane(), sim, report)) return false;
  judge_all(engine, sim, report);
  *exact = with_own_outputs(engine, memory);
  return run(*reference::exact_lane(), *exact, report);
}

void expect_right(const Report& report) { EXPECT_TRUE(report.ok()) << report; }
void expect_wrong(const Report& report, const std::string& tap) {
  EXPECT_EQ(report.taps().count(tap), 1u) << "a wrong element of " << tap << " passed. " << report;
}

// An element that is off by three steps of bf16, or by 2^-10 in fp32: the largest of the last row.
void spoil(const as_tensor& t) {
  if (as_tensor_numel(&t) == 0) return;
  char* last = nullptr;
  for_each_row(t, [&](std::int64_t, char* row) { last = row; });
  const auto magnitude = [&](std::int64_t c) {
    return t.dtype == AS_BF16 ? std::fabs(to_float(reinterpret_cast<bf16_t*>(last)[c]))
                              : std::fabs(reinterpret_cast<float*>(last)[c]);
  };
  std::int64_t largest = 0;
  for (std::int64_t c = 1; c < t.shape[t.rank - 1]; ++c) {
    if (magnitude(c) > magnitude(largest)) largest = c;
  }
  if (t.dtype == AS_BF16) {
    bf16_t& value = reinterpret_cast<bf16_t*>(last)[largest];
    value.bits = static_cast<std::uint16_t>(value.bits + 3);
  } else {
    reinterpret_cast<float*>(last)[largest] *= 1 + 0x1p-10f;
  }
}

// The CPU lane's op with one wrong element in one output.
template <as_op_id op, class Params, as_tensor Params::*output>
std::int32_t spoiled_op(const void* params, const as_call* call, as_error* error) {
  const std::int32_t status = cpu::lane()->ops[op](params, call, error);
  if (status == AS_OK) spoil(static_cast<const Params*>(params)->*output);
  return status;
}

constexpr as_op_id kProjections[] = {AS_OP_Q_KV_A_PROJ,
                                     AS_OP_Q_B_PROJ,
                                     AS_OP_COMPRESSOR_PROJ,
                                     AS_OP_INDEXER_COMPRESSOR_PROJ,
                                     AS_OP_INDEXER_Q_PROJ,
                                     AS_OP_INDEXER_WEIGHTS_PROJ,
                                     AS_OP_WO_B,
                                     AS_OP_Q_PROJ,
                                     AS_OP_K_PROJ,
                                     AS_OP_V_PROJ,
                                     AS_OP_O_PROJ,
                                     AS_OP_DRAFT_H_PROJ,
                                     AS_OP_DRAFT_E_PROJ,
                                     AS_OP_LM_HEAD};

const Lane& spoiled() {
  static const Lane kLane = [] {
    Lane lane = *cpu::lane();
    lane.name = "spoiled";
    lane.ops[AS_OP_ATTN_NORM] =
        spoiled_op<AS_OP_ATTN_NORM, as_rms_norm_params, &as_rms_norm_params::y>;
    lane.ops[AS_OP_FINAL_NORM] =
        spoiled_op<AS_OP_FINAL_NORM, as_rms_norm_params, &as_rms_norm_params::y>;
    lane.ops[AS_OP_Q_KV_NORM] =
        spoiled_op<AS_OP_Q_KV_NORM, as_q_kv_norm_params, &as_q_kv_norm_params::kv>;
    lane.ops[AS_OP_RESIDUAL] =
        spoiled_op<AS_OP_RESIDUAL, as_residual_params, &as_residual_params::out>;
    lane.ops[AS_OP_DRAFT_SUM] =
        spoiled_op<AS_OP_DRAFT_SUM, as_residual_params, &as_residual_params::out>;
    lane.ops[AS_OP_DRAFT_NORM] =
        spoiled_op<AS_OP_DRAFT_NORM, as_draft_norm_params, &as_draft_norm_params::h>;
    lane.ops[AS_OP_WO_A] =
        spoiled_op<AS_OP_WO_A, as_grouped_linear_params, &as_grouped_linear_params::y>;
    // The same function does all projections.
    for (const as_op_id op : kProjections) {
      lane.ops[op] = spoiled_op<AS_OP_WO_B, as_linear_params, &as_linear_params::y>;
    }
    return lane;
  }();
  return kLane;
}

// Whether a case has an element that can be wrong by steps of its own size.
template <class Case>
bool visible(const Case& c) {
  return c.tokens > 0 && c.scale > 0;
}

struct NormCase {
  std::string name;
  std::int64_t tokens, hidden;
  float scale = 1.0f;
  std::int64_t pad = 0;
};

void PrintTo(const NormCase& c, std::ostream* out) { *out << c.name; }

// An fp32 norm: the mean and its root move the result by far less than hidden * 2^-24 of it.
Bound norm_bound(std::int64_t hidden) {
  const double inside = static_cast<double>(hidden + 8) * kF32;
  return [inside](std::int64_t, std::int64_t, double y) {
    return (kBf16 + inside) * std::fabs(y) + kTiny;
  };
}

Report check_rms_norm(const Lane& lane, const NormCase& c, as_op_id op) {
  Report report(case_seed("norm " + c.name + std::to_string(op)));
  Random random(report.seed());
  Memory memory;
  OpParams engine, exact;
  auto& p = engine.init<as_rms_norm_params>(op);
  p.x = memory.normals(AS_BF16, {c.tokens, c.hidden}, random, c.scale, c.pad);
  p.weight = memory.normals(AS_BF16, {c.hidden}, random);
  p.y = memory.make(AS_BF16, {c.tokens, c.hidden}, c.pad);
  p.eps = op == AS_OP_ATTN_NORM ? 1e-6 : 1e-5;
  if (!run_all(lane, engine, &memory, &exact, &report)) return report;
  judge_bound("y against ref.exact", p.y, exact.get<as_rms_norm_params>().y, nullptr,
              norm_bound(c.hidden), &report);
  return report;
}

Report check_q_kv_norm(const Lane& lane, const NormCase& c) {
  Report report(case_seed("q_kv_norm " + c.name));
  Random random(report.seed());
  Memory memory;
  OpParams engine, exact;
  auto& p = engine.init<as_q_kv_norm_params>(AS_OP_Q_KV_NORM);
  p.qkv = memory.normals(AS_BF16, {c.tokens, c.hidden + AS_HEAD_DIM}, random, c.scale, c.pad);
  // The halves differ in size, so that one norm over both would show.
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    for (std::int64_t i = 0; i < c.hidden; ++i) {
      bf16_t& x = *at<bf16_t>(p.qkv, t, i);
      x = to_bf16(8 * to_float(x));
    }
  }
  p.q_weight = memory.normals(AS_BF16, {c.hidden}, random);
  p.kv_weight = memory.normals(AS_BF16, {AS_HEAD_DIM}, random);
  p.qr = memory.make(AS_BF16, {c.tokens, c.hidden}, c.pad);
  p.kv = memory.make(AS_BF16, {c.tokens, AS_HEAD_DIM}, c.pad);
  p.eps = 1e-6;
  if (!run_all(lane, engine, &memory, &exact, &report)) return report;
  const auto& e = exact.get<as_q_kv_norm_params>();
  judge_bound("qr against ref.exact", p.qr, e.qr, nullptr, norm_bound(c.hidden), &report);
  judge_bound("kv against ref.exact", p.kv, e.kv, nullptr, norm_bound(AS_HEAD_DIM), &report);
  return report;
}

Report check_draft_norm(const Lane& lane, const NormCase& c) {
  Report report(case_seed("draft_norm " + c.name));
  Random random(report.seed());
  Memory memory;
  OpParams engine, exact;
  auto& p = engine.init<as_draft_norm_params>(AS_OP_DRAFT_NORM);
  constexpr std::int64_t kWords = 40;
  std::vector<std::int32_t> next;
  std::vector<std::int64_t> positions;
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    next.push_back(static_cast<std::int32_t>(below(random, kWords + 1)) - 1);
    positions.push_back(below(random, 4));
  }
  p.hidden = memory.normals(AS_BF16, {c.tokens, c.hidden}, random, c.scale, c.pad);
  p.embedding = memory.normals(AS_BF16, {kWords, c.hidden}, random, c.scale, c.pad);
  p.tokens = memory.ints(next, {c.tokens});
  p.positions = memory.ints64(positions);
  p.h_weight = memory.normals(AS_BF16, {c.hidden}, random);
  p.e_weight = memory.normals(AS_BF16, {c.hidden}, random);
  p.h = memory.make(AS_BF16, {c.tokens, c.hidden}, c.pad);
  p.e = memory.make(AS_BF16, {c.tokens, c.hidden}, c.pad);
  p.eps = 1e-6;
  if (!run_all(lane, engine, &memory, &exact, &report)) return report;
  const auto& q = exact.get<as_draft_norm_params>();
  judge_bound("h against ref.exact", p.h, q.h, nullptr, norm_bound(c.hidden), &report);
  judge_bound("e against ref.exact", p.e, q.e, nullptr, norm_bound(c.hidden), &report);
  return report;
}

Report check_residual(const Lane& lane, const NormCase& c, bool in_place) {
  Report report(case_seed("residual " + c.name));
  Random random(report.seed());
  Memory memory;
  OpParams engine;
  auto& p = engine.init<as_residual_params>(AS_OP_RESIDUAL);
  p.h = memory.normals(AS_BF16, {c.tokens, c.hidden}, random, c.scale, c.pad);
  p.y = memory.normals(AS_BF16, {c.tokens, c.hidden}, random, 0.3f * c.scale, c.pad);
  // The references read what was there before.
  const as_tensor before = memory.make(AS_BF16, {c.tokens, c.hidden});
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    std::copy_n(at<bf16_t>(p.h, t), c.hidden, at<bf16_t>(before, t));
  }
  p.out = in_place ? p.h : memory.make(AS_BF16, {c.tokens, c.hidden}, c.pad);
  if (!run(lane, engine, &report)) return report;
  memory.check_guards(&report);
  OpParams own = with_own_outputs(engine, &memory);
  own.get<as_residual_params>().h = before;
  if (!run(*reference::sim_lane(), own, &report)) return report;
  judge_all(engine, own, &report);
  if (!run(*reference::exact_lane(), own, &report)) return report;
  judge_bound(
      "out against ref.exact", p.out, own.get<as_residual_params>().out, nullptr,
      [](std::int64_t, std::int64_t, double v) { return kBf16 * std::fabs(v) + kTiny; }, &report);
  return report;
}

class NormProperty : public testing::TestWithParam<NormCase> {};

TEST_P(NormProperty, RmsNormMatchesBothReferences) {
  for (const as_op_id op : {AS_OP_ATTN_NORM, AS_OP_FINAL_NORM}) {
    expect_right(check_rms_norm(*cpu::lane(), GetParam(), op));
    if (visible(GetParam())) expect_wrong(check_rms_norm(spoiled(), GetParam(), op), "y");
  }
}

TEST_P(NormProperty, QKvNormMatchesBothReferences) {
  expect_right(check_q_kv_norm(*cpu::lane(), GetParam()));
  if (visible(GetParam())) expect_wrong(check_q_kv_norm(spoiled(), GetParam()), "kv");
}

TEST_P(NormProperty, DraftNormMatchesBothReferences) {
  expect_right(check_draft_norm(*cpu::lane(), GetParam()));
  if (visible(GetParam())) expect_wrong(check_draft_norm(spoiled(), GetParam()), "h");
}

TEST_P(NormProperty, ResidualMatchesBothReferences) {
  for (const bool in_place : {false, true}) {
    expect_right(check_residual(*cpu::lane(), GetParam(), in_place));
    if (visible(GetParam())) expect_wrong(check_residual(spoiled(), GetParam(), in_place), "out");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, NormProperty,
    testing::Values(NormCase{"no_tokens", 0, 64}, NormCase{"one_token", 1, 1024, 1.0f, 3},
                    NormCase{"odd_hidden", 5, 100, 1.0f, 1}, NormCase{"one_column", 3, 1},
                    NormCase{"wide", 4, 4096, 1.0f, 8}, NormCase{"many", 129, 192},
                    NormCase{"block", 128, 33, 2.0f, 7}, NormCase{"small_values", 5, 512, 1e-6f},
                    NormCase{"large_values", 3, 1536, 1e6f}, NormCase{"zeros", 2, 256, 0.0f},
                    NormCase{"long", 2051, 16}),
    name_of<NormCase>);

// ---- projections

struct LinearCase {
  std::string name;
  std::int64_t tokens, in, out;
  std::int64_t groups = 1;
  float scale = 1.0f;
  std::int64_t pad = 0;
};
void PrintTo(const LinearCase& c, std::ostream* out) { *out << c.name; }

// An fp32 sum of n products in any order is off by at most n * 2^-24 times the sum of |x w|; then
// one rounding. x, w: row of x, row of the weight.
double sum_bound(const bf16_t* x, const bf16_t* w, std::int64_t n, double y, bool bf16) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += std::fabs(double{to_float(x[i])} * to_float(w[i]));
  const double rounding = bf16 ? kBf16 * std::fabs(y) + kTiny : kF32 * std::fabs(y);
  return static_cast<double>(n + 1) * kF32 * sum + rounding;
}

Report check_linear(const Lane& lane, const LinearCase& c, as_op_id op) {
  const bool bf16 =
      op != AS_OP_COMPRESSOR_PROJ && op != AS_OP_INDEXER_COMPRESSOR_PROJ && op != AS_OP_LM_HEAD;
  Report report(case_seed("linear " + c.name + std::to_string(op)));
  Random random(report.seed());
  Memory memory;
  OpParams engine, exact;
  auto& p = engine.init<as_linear_params>(op);
  p.x = memory.normals(AS_BF16, {c.tokens, c.in}, random, c.scale, c.pad);
  p.weight = memory.normals(AS_BF16, {c.out, c.in}, random, 0.02f, c.pad);
  p.y = memory.make(bf16 ? AS_BF16 : AS_F32, {c.tokens, c.out}, c.pad);
  if (!run_all(lane, engine, &memory, &exact, &report)) return report;
  judge_bound(
      "y against ref.exact", p.y, exact.get<as_linear_params>().y, nullptr,
      [&](std::int64_t t, std::int64_t o, double y) {
        return sum_bound(at<bf16_t>(p.x, t), at<bf16_t>(p.weight, o), c.in, y, bf16);
      },
      &report);
  return report;
}

Report check_grouped(const Lane& lane, const LinearCase& c) {
  Report report(case_seed("grouped " + c.name));
  Random random(report.seed());
  Memory memory;
  OpParams engine, exact;
  auto& p = engine.init<as_grouped_linear_params>(AS_OP_WO_A);
  p.x = memory.normals(AS_BF16, {c.tokens, c.groups, c.in}, random, c.scale, c.pad);
  p.weight = memory.normals(AS_BF16, {c.groups, c.out, c.in}, random, 0.02f, c.pad);
  p.y = memory.make(AS_BF16, {c.tokens, c.groups, c.out}, c.pad);
  if (!run_all(lane, engine, &memory, &exact, &report)) return report;
  judge_bound(
      "y against ref.exact", p.y, exact.get<as_grouped_linear_params>().y, nullptr,
      [&](std::int64_t row, std::int64_t o, double y) {
        const std::int64_t g = row % c.groups;
        return sum_bound(at<bf16_t>(p.x, row / c.groups, g), at<bf16_t>(p.weight, g, o), c.in, y,
                         true);
      },
      &report);
  return report;
}

class LinearProperty : public testing::TestWithParam<LinearCase> {};

TEST_P(LinearProperty, MatchesBothReferences) {
  for (const as_op_id op : kProjections) {
    SCOPED_TRACE(as_op_find(op)->name);
    expect_right(check_linear(*cpu::lane(), GetParam(), op));
    if (visible(GetParam())) expect_wrong(check_linear(spoiled(), GetParam(), op), "y");
  }
}

TEST_P(LinearProperty, GroupedMatchesBothReferences) {
  expect_right(check_grouped(*cpu::lane(), GetParam()));
  if (visible(GetParam())) expect_wrong(check_grouped(spoiled(), GetParam()), "y");
}

INSTANTIATE_TEST_SUITE_P(Shapes, LinearProperty,
                         testing::Values(LinearCase{"no_tokens", 0, 64, 64, 2},
                                         LinearCase{"one_token", 1, 512, 96, 8},
                                         LinearCase{"two_tokens_odd", 2, 77, 13, 3, 1.0f, 3},
                                         LinearCase{"five_tokens", 5, 256, 65, 2, 1.0f, 8},
                                         LinearCase{"three_by_one", 3, 1, 1, 4},
                                         LinearCase{"block", 64, 128, 64},
                                         LinearCase{"many", 129, 63, 33, 2, 1.0f, 1},
                                         LinearCase{"long_sum", 2, 8192, 7, 1, 4.0f},
                                         LinearCase{"small_values", 4, 192, 31, 2, 1e-8f},
                                         LinearCase{"large_values", 4, 192, 31, 1, 1e12f},
                                         LinearCase{"zeros", 3, 64, 5, 2, 0.0f}),
                         name_of<LinearCase>);

}  // namespace dense_property
}  // namespace attnscope::properties
