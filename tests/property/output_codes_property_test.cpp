// Attention's output in FP8: AS_OP_INVERSE_ROPE with codes and AS_OP_WO_A that multiplies them,
// against both references, over odd numbers of tokens, heads and groups; groups of fewer outputs
// than a block has; values below the floor of a scale; the planted bugs of this path.
#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/mutants/mutants.h"
#include "tests/property/checks.h"

namespace attnscope::properties {

namespace {

constexpr std::int64_t kOutputBlock = 128;

void put_codes(const as_tensor& t, Random& random) {
  for_each_row(t, [&](std::int64_t, char* row) {
    for (std::int64_t i = 0; i < t.shape[t.rank - 1]; ++i) {
      auto code = static_cast<std::uint8_t>(random());
      if ((code & 0x7f) == 0x7f) code = 0x38;
      row[i] = static_cast<char>(code);
    }
  });
}

// Powers of two, or any numbers, far apart from block to block.
void put_scales(const as_tensor& t, bool odd, Random& random) {
  for_each_row(t, [&](std::int64_t row, char* values) {
    for (std::int64_t i = 0; i < t.shape[t.rank - 1]; ++i) {
      const float factor = odd ? 1.0f + static_cast<float>(below(random, 1000)) / 1024 : 1.0f;
      reinterpret_cast<float*>(values)[i] =
          std::ldexp(factor, static_cast<int>(-9 - (row + 2 * i) % 5));
    }
  });
}

}  // namespace

Report check_turned_codes(const Lane& lane, const TurnedCodesCase& c) {
  Report report(case_seed("turned codes " + c.name));
  Random random(report.seed());
  Memory memory;
  OpParams engine;
  auto& p = engine.init<as_inverse_rope_params>(AS_OP_INVERSE_ROPE);
  const std::vector<std::int64_t> shape = {c.tokens, c.heads, AS_HEAD_DIM};
  p.o = memory.normals(AS_BF16, shape, random, c.scale, c.pad);
  // Blocks of other sizes than their neighbours, so that another's scale would show.
  for_each_row(p.o, [](std::int64_t, char* row) {
    auto* values = reinterpret_cast<bf16_t*>(row);
    for (std::int64_t d = 0; d < AS_HEAD_DIM; ++d) {
      const float factor = std::ldexp(1.0f, static_cast<int>(-2 * (d / kOutputBlock)));
      values[d] = to_bf16(to_float(values[d]) * factor);
    }
  });
  std::vector<std::int64_t> positions;
  for (std::int64_t t = 0; t < c.tokens; ++t) positions.push_back(below(random, 4096));
  p.positions = memory.ints64(positions);
  p.rope = compressed_rope();
  if (c.out_too) p.out = memory.make(AS_BF16, shape, c.pad);
  p.row = memory.make(AS_BF16, shape, c.pad);
  p.codes = memory.make(AS_U8, shape, c.pad);
  p.scales = memory.make(AS_F32, {c.tokens, c.heads, AS_HEAD_DIM / kOutputBlock}, c.pad);
  p.scale_floor = c.scale_floor;
  if (!run(lane, engine, &report)) return report;
  memory.check_guards(&report);
  if (c.out_too) judge_equal("out", p.out, p.row, &report);
  OpParams sim = with_own_outputs(engine, &memory);
  if (!run(*reference::sim_lane(), sim, &report)) return report;
  judge(engine, sim, "row", &report);

  // The codes, given the lane's own row.
  OpParams given = with_own_outputs(engine, &memory);
  auto& g = given.get<as_inverse_rope_params>();
  g.row = p.row;
  g.out = no_tensor();
  g.rows_given = 1;
  if (!run(*reference::sim_lane(), given, &report)) return report;
  judge(engine, given, "codes", &report);
  judge(engine, given, "scales", &report);

  // ref.exact has the values in the place of codes: half a step of each.
  OpParams exact = with_own_outputs(engine, &memory);
  auto& e = exact.get<as_inverse_rope_params>();
  e.codes = memory.make(AS_F64, shape);
  e.scales = no_tensor();
  if (!run(*reference::exact_lane(), exact, &report)) return report;
  const as_tensor read = memory.make(AS_F64, shape);
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    for (std::int64_t h = 0; h < c.heads; ++h) {
      for (std::int64_t d = 0; d < AS_HEAD_DIM; ++d) {
        *at<double>(read, t, h, d) =
            double{cpu::e4m3_to_float(*at<std::uint8_t>(p.codes, t, h, d))} *
            double{*at<float>(p.scales, t, h, d / kOutputBlock)};
      }
    }
  }
  judge_bound(
      "codes against ref.exact", read, e.codes, nullptr,
      [&](std::int64_t row, std::int64_t d, double value) {
        const double scale = *at<float>(p.scales, row / c.heads, row % c.heads, d / kOutputBlock);
        const double even = element(e.codes, row, d - d % 2), odd = element(e.codes, row, d | 1);
        const double turned = d < AS_HEAD_DIM - AS_ROPE_DIM ? 0 : 0x1p-11 * std::hypot(even, odd);
        return std::max(std::fabs(value) * 0x1.1p-4, scale * 0x1p-10) +
               2 * kBf16Half * std::fabs(value) + turned + 0x1p-133;
      },
      &report);
  return report;
}

Report check_groups_in_fp8(const Lane& lane, const GroupsCase& c) {
  Report report(case_seed("groups in fp8 " + c.name));
  Random random(report.seed());
  Memory memory;
  OpParams engine;
  auto& p = engine.init<as_grouped_linear_params>(AS_OP_WO_A);
  const std::int64_t blocks = c.in / kOutputBlock;
  p.x = memory.make(AS_U8, {c.tokens, c.groups, c.in}, c.pad);
  p.x_scale = memory.make(AS_F32, {c.tokens, c.groups, blocks}, c.pad);
  p.weight = memory.make(AS_U8, {c.groups, c.out, c.in}, c.pad);
  p.weight_scale = memory.make(AS_F32, {c.groups, ceil_div(c.out, kOutputBlock), blocks}, c.pad);
  put_codes(p.x, random);
  put_codes(p.weight, random);
  put_scales(p.x_scale, false, random);
  put_scales(p.weight_scale, c.odd_scales, random);
  p.y = memory.make(AS_BF16, {c.tokens, c.groups, c.out}, c.pad);
  if (!run(lane, engine, &report)) return report;
  memory.check_guards(&report);
  const OpParams sim = with_own_outputs(engine, &memory);
  if (!run(*reference::sim_lane(), sim, &report)) return report;
  judge_all(engine, sim, &report);
  return report;
}

const std::vector<TurnedCodesCase>& turned_codes_cases() {
  static const std::vector<TurnedCodesCase> kCases = {
      {"no_tokens", 0, 2},
      {"one_token", 1, 1},
      {"both_outputs", 5, 3, 1.0f, 8, AS_SCALE_FLOOR_1E10, true},
      {"padded_rows", 7, 2, 4.0f, 3},
      {"below_the_usual_floor", 3, 4, 1e-7f},
      {"below_any_floor", 3, 4, 1e-13f},
      {"usual_floor", 3, 4, 1e-7f, 0, AS_SCALE_FLOOR_1E4},
      {"zeros", 2, 2, 0.0f},
      {"large_values", 2, 3, 1e20f},
      {"many_tokens", 67, 8},
  };
  return kCases;
}

const std::vector<GroupsCase>& groups_cases() {
  static const std::vector<GroupsCase> kCases = {
      {"no_tokens", 0, 2, 128, 64},           {"one_group", 3, 1, 256, 128},
      {"half_a_block", 5, 2, 512, 64},        {"one_output", 2, 3, 128, 1, 16},
      {"block_and_a_bit", 9, 2, 384, 130, 5}, {"many_tokens", 131, 2, 256, 64},
      {"eight_groups", 4, 8, 2048, 128},      {"any_scales", 7, 3, 256, 256, 0, true},
  };
  return kCases;
}

namespace output_codes_property_test {

class TurnedCodesProperty : public testing::TestWithParam<TurnedCodesCase> {};
TEST_P(TurnedCodesProperty, MatchBothReferences) {
  const Report report = check_turned_codes(*cpu::lane(), GetParam());
  EXPECT_TRUE(report.ok()) << report;
}
INSTANTIATE_TEST_SUITE_P(Shapes, TurnedCodesProperty, testing::ValuesIn(turned_codes_cases()),
                         name_of<TurnedCodesCase>);

class GroupsInFp8Property : public testing::TestWithParam<GroupsCase> {};
TEST_P(GroupsInFp8Property, MatchRefSim) {
  const Report report = check_groups_in_fp8(*cpu::lane(), GetParam());
  EXPECT_TRUE(report.ok()) << report;
}
INSTANTIATE_TEST_SUITE_P(Shapes, GroupsInFp8Property, testing::ValuesIn(groups_cases()),
                         name_of<GroupsCase>);

TEST(OutputCodesMutants, AreSeenInTheirTaps) {
  const auto lane_of = [](const std::string& name) -> const Lane& {
    return *std::ranges::find_if(mutants::lanes(), [&](const Lane& l) { return l.name == name; });
  };
  const TurnedCodesCase turned = {"mutants", 5, 2};
  EXPECT_TRUE(check_turned_codes(lane_of("mutant:fp8_output_scales_shifted"), turned)
                  .taps()
                  .contains("scales"));
  EXPECT_TRUE(
      check_turned_codes(lane_of("mutant:fp8_output_turned_last"), turned).taps().contains("row"));
  const GroupsCase groups = {"mutants", 5, 2, 256, 64};
  for (const char* name : {"mutant:fp8_scales_of_next_group", "mutant:group_of_other_heads"}) {
    EXPECT_TRUE(check_groups_in_fp8(lane_of(name), groups).taps().contains("y")) << name;
  }
}

// What does not go together is refused, with what to do.
TEST(OutputCodes, OddCallsAreRefused) {
  Memory memory;
  as_error error{};
  OpParams turn;
  auto& p = turn.init<as_inverse_rope_params>(AS_OP_INVERSE_ROPE);
  p.o = memory.make(AS_BF16, {1, 1, AS_HEAD_DIM});
  p.positions = memory.ints64({0});
  p.rope = compressed_rope();
  p.row = memory.make(AS_BF16, {1, 1, AS_HEAD_DIM});
  EXPECT_EQ(cpu::lane()->ops[AS_OP_INVERSE_ROPE](&p, nullptr, &error), AS_BAD_INPUT);
  EXPECT_STREQ(error.message, "inverse_rope: row belongs to codes, which are absent");
  OpParams mix;
  auto& g = mix.init<as_grouped_linear_params>(AS_OP_WO_A);
  g.x = memory.make(AS_BF16, {1, 1, 128});
  g.weight = memory.make(AS_BF16, {1, 4, 128});
  g.y = memory.make(AS_BF16, {1, 1, 4});
  g.x_scale = memory.make(AS_F32, {1, 1, 1});
  EXPECT_EQ(cpu::lane()->ops[AS_OP_WO_A](&g, nullptr, &error), AS_BAD_INPUT);
  EXPECT_STREQ(error.message,
               "wo_a: weight is bf16 and there is an x_scale; scales belong to codes (u8)");
  g.weight = memory.make(AS_U8, {1, 4, 100});
  g.x = memory.make(AS_U8, {1, 1, 100});
  EXPECT_EQ(cpu::lane()->ops[AS_OP_WO_A](&g, nullptr, &error), AS_BAD_INPUT);
  EXPECT_STREQ(error.message,
               "wo_a: weight has codes of 100 inputs a group; allowed: multiples of 128");
}

}  // namespace output_codes_property_test
}  // namespace attnscope::properties
