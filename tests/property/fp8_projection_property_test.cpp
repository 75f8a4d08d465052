// Projections in FP8 (AS_OP_Q_KV_A_PROJ, AS_OP_Q_B_PROJ, AS_OP_INDEXER_Q_PROJ, AS_OP_WO_B with
// codes for a weight) against both references, over odd numbers of tokens and sides of every
// multiple of 128; rows with NaN, infinities and zeros; the planted bugs of their scales.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/mutants/mutants.h"
#include "tests/property/checks.h"

namespace attnscope::properties {
namespace fp8_projection_property_test {

constexpr std::int64_t kBlock = 128;
constexpr as_op_id kOps[] = {AS_OP_Q_KV_A_PROJ, AS_OP_Q_B_PROJ, AS_OP_INDEXER_Q_PROJ, AS_OP_WO_B};

struct Fp8Case {
  std::string name;
  std::int64_t tokens, in, out;
  float scale = 1.0f;
  std::int64_t pad = 0;
  bool special = false;     // NaN, infinities and blocks of zeros among the inputs
  bool odd_scales = false;  // of the weight: any numbers, not powers of two
};
void PrintTo(const Fp8Case& c, std::ostream* out) { *out << c.name; }

// e4m3 by its definition: bias 7, three bits of fraction.
double code_value(std::uint8_t code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  return code & 0x80 ? -magnitude : magnitude;
}

as_tensor codes(Memory& memory, const Fp8Case& c, Random& random) {
  const as_tensor t = memory.make(AS_U8, {c.out, c.in}, c.pad);
  for (std::int64_t o = 0; o < c.out; ++o) {
    for (std::int64_t i = 0; i < c.in; ++i) {
      std::uint8_t code = static_cast<std::uint8_t>(random());
      if ((code & 0x7f) == 0x7f) code = 0x38;
      *at<std::uint8_t>(t, o, i) = code;
    }
  }
  return t;
}

// Far apart from block to block, so that a neighbour's would show.
as_tensor scales(Memory& memory, const Fp8Case& c, Random& random) {
  const as_tensor t = memory.make(AS_F32, {c.out / kBlock, c.in / kBlock}, c.pad);
  for (std::int64_t o = 0; o < t.shape[0]; ++o) {
    for (std::int64_t b = 0; b < t.shape[1]; ++b) {
      const auto exponent = static_cast<int>(-12 - (o + 2 * b) % 5);
      const float odd = c.odd_scales ? 1.0f + static_cast<float>(below(random, 1000)) / 1024 : 1.0f;
      *at<float>(t, o, b) = std::ldexp(odd, exponent);
    }
  }
  return t;
}

void put_special(const as_tensor& x, Random& random) {
  constexpr std::uint16_t kBits[] = {0x7fc0, 0xffc0, 0x7f80, 0xff80};
  for (std::int64_t t = 0; t < x.shape[0]; ++t) {
    if (t % 3 == 0) at<bf16_t>(x, t, below(random, x.shape[1]))->bits = kBits[t / 3 % 4];
    if (t % 3 == 1) {
      const std::int64_t first = below(random, x.shape[1] / kBlock) * kBlock;
      std::fill_n(at<bf16_t>(x, t, first), kBlock, bf16_t{0});
    }
  }
}

// What separates y from the product without quantised inputs: half a step of each input's code, an
// fp32 sum, one rounding.
double bound(const as_linear_params& p, std::int64_t t, std::int64_t o, double y) {
  double quantised = 0, sum = 0;
  for (std::int64_t b = 0; b < p.x.shape[1] / kBlock; ++b) {
    double amax = 1e-4;
    for (std::int64_t i = b * kBlock; i < (b + 1) * kBlock; ++i) {
      amax = std::max(amax, std::fabs(double{to_float(*at<bf16_t>(p.x, t, i))}));
    }
    const double least = amax / 448 * 2 * 0x1p-10;  // half a step of the smallest codes
    for (std::int64_t i = b * kBlock; i < (b + 1) * kBlock; ++i) {
      const double x = std::fabs(double{to_float(*at<bf16_t>(p.x, t, i))});
      const double w = std::fabs(code_value(*at<std::uint8_t>(p.weight, o, i))) *
                       double{*at<float>(p.weight_scale, o / kBlock, b)};
      quantised += w * std::max(x / 16, least);
      sum += w * x * 17 / 16;
    }
  }
  const double half_step = 0x1.01p-8 * std::fabs(y) + 0x1p-133;
  return quantised * 1.01 + static_cast<double>(p.x.shape[1] + 2) * 0x1p-24 * sum + half_step;
}

Report check(const Lane& lane, const Fp8Case& c, as_op_id op) {
  Report report(case_seed("fp8 projection " + c.name + std::to_string(op)));
  Random random(report.seed());
  Memory memory;
  OpParams engine;
  auto& p = engine.init<as_linear_params>(op);
  p.x = memory.normals(AS_BF16, {c.tokens, c.in}, random, c.scale, c.pad);
  if (c.special) put_special(p.x, random);
  p.weight = codes(memory, c, random);
  p.weight_scale = scales(memory, c, random);
  p.y = memory.make(AS_BF16, {c.tokens, c.out}, c.pad);
  if (!run(lane, engine, &report)) return report;
  memory.check_guards(&report);
  const OpParams sim = with_own_outputs(engine, &memory);
  if (!run(*reference::sim_lane(), sim, &report)) return report;
  judge_all(engine, sim, &report);
  if (c.special) return report;
  const OpParams exact = with_own_outputs(engine, &memory);
  if (!run(*reference::exact_lane(), exact, &report)) return report;
  judge_bound(
      "y against ref.exact", p.y, exact.get<as_linear_params>().y, nullptr,
      [&](std::int64_t t, std::int64_t o, double y) { return bound(p, t, o, y); }, &report);
  return report;
}

class Fp8ProjectionProperty : public testing::TestWithParam<Fp8Case> {};

TEST_P(Fp8ProjectionProperty, MatchesBothReferences) {
  for (const as_op_id op : kOps) {
    SCOPED_TRACE(as_op_find(op)->name);
    const Report report = check(*cpu::lane(), GetParam(), op);
    EXPECT_TRUE(report.ok()) << report;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Fp8ProjectionProperty,
                         testing::Values(Fp8Case{"no_tokens", 0, 128, 128},
                                         Fp8Case{"one_token", 1, 128, 128},
                                         Fp8Case{"one_row_of_blocks", 3, 640, 128, 1.0f, 3},
                                         Fp8Case{"one_column_of_blocks", 5, 128, 640, 1.0f, 8},
                                         Fp8Case{"three_blocks", 65, 384, 256, 4.0f},
                                         Fp8Case{"many_tokens", 131, 256, 384, 1.0f, 1},
                                         Fp8Case{"long_sum", 2, 8192, 128},
                                         Fp8Case{"any_scales", 7, 512, 256, 1.0f, 0, false, true},
                                         Fp8Case{"below_the_floor", 4, 256, 128, 1e-6f},
                                         Fp8Case{"large_values", 4, 256, 128, 1e12f},
                                         Fp8Case{"zeros", 3, 256, 128, 0.0f},
                                         Fp8Case{"special_values", 14, 384, 128, 1.0f, 0, true}),
                         name_of<Fp8Case>);

// Each bug shows in the output of its op, in FP8 alone.
TEST(Fp8ProjectionMutants, AreSeen) {
  const struct {
    std::string name;
    as_op_id op;
  } bugs[] = {{"mutant:fp8_scale_truncated", AS_OP_Q_KV_A_PROJ},
              {"mutant:fp8_scale_of_next_block", AS_OP_Q_B_PROJ}};
  for (const auto& bug : bugs) {
    SCOPED_TRACE(bug.name);
    const auto& lanes = mutants::lanes();
    const auto lane =
        std::find_if(lanes.begin(), lanes.end(), [&](const Lane& l) { return l.name == bug.name; });
    ASSERT_NE(lane, lanes.end());
    const Report wrong = check(*lane, {"mutants", 9, 384, 256}, bug.op);
    EXPECT_EQ(wrong.taps().count("y"), 1u) << wrong;
  }
}

}  // namespace fp8_projection_property_test
}  // namespace attnscope::properties
