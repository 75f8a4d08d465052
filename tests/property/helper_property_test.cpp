// The helper ops over odd shapes, empty states and rows, holes, poison.
#include <algorithm>
#include <climits>
#include <cmath>
#include <cstring>
#include <numeric>

#include "tests/property/helper_checks.h"

namespace attnscope::properties {
namespace {

// By a class of the tolerance file.
void judge_by(const char* tap, const char* rule, const as_tensor& value, const as_tensor& expected,
              Report* report) {
  static const auto kTolerances = Tolerances::load(ATTNSCOPE_SOURCE_DIR "/assets/tolerances.json");
  if (!kTolerances) return report->fail(tap, kTolerances.error().text());
  const Comparison result = compare(value, expected, {}, kTolerances->classes().at(rule));
  if (result.within) return;
  report->fail(tap, std::to_string(result.budget_used) + " of its bound " + rule + ", " +
                        std::to_string(result.worst.value) + " against " +
                        std::to_string(result.worst.reference) + ". " + result.note);
}

as_tensor bytes(std::vector<std::int64_t> shape, std::int64_t pad, Random& random, Memory* memory) {
  as_tensor t = memory->make(AS_U8, std::move(shape), pad);
  for_each_row(t, [&](std::int64_t, char* row) {
    for (std::int64_t i = 0; i < t.shape[t.rank - 1]; ++i) row[i] = static_cast<char>(random());
  });
  return t;
}

// The same elements in memory of its own.
as_tensor copy_of(const as_tensor& t, Memory* memory) {
  as_tensor copy = memory->make(t.dtype, std::vector<std::int64_t>(t.shape, t.shape + t.rank));
  const auto size = static_cast<std::size_t>(t.shape[t.rank - 1] * as_dtype_size(t.dtype));
  std::vector<char*> rows;
  for_each_row(copy, [&](std::int64_t, char* row) { rows.push_back(row); });
  for_each_row(t, [&](std::int64_t i, char* row) {
    std::memcpy(rows[static_cast<std::size_t>(i)], row, size);
  });
  return copy;
}

as_tensor codes(std::vector<std::int64_t> shape, std::int64_t pad, Random& random, Memory* memory) {
  as_tensor t = bytes(std::move(shape), pad, random, memory);
  for_each_row(t, [&](std::int64_t, char* row) {
    for (std::int64_t i = 0; i < t.shape[1]; ++i) {
      if ((row[i] & 0x7f) == 0x7f) row[i] = 0x38;  // no NaN
    }
  });
  return t;
}

}  // namespace

Report check_merge(const Lane& lane, const MergeCase& c) {
  Report report(case_seed(c.name));
  Random random(report.seed());
  Memory memory;
  auto p = helper_params<as_merge_states_params>();
  const std::vector<std::int64_t> shape = {c.tokens, c.heads, c.dim};
  p.a = memory.normals(c.dtype, shape, random, 1.0f, 3);
  p.b = memory.normals(c.dtype, shape, random, 1.0f, 8);
  p.lse_a = memory.normals(AS_F32, {c.tokens, c.heads}, random, 20.0f, 1);
  p.lse_b = memory.normals(AS_F32, {c.tokens, c.heads}, random, 20.0f);
  p.base_2 = c.base_2 ? 1 : 0;
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    for (std::int64_t h = 0; h < c.heads; ++h) {
      // Every way to be empty, with values that must not be looked at; ties; far apart.
      float& a = *at<float>(p.lse_a, t, h);
      float& b = *at<float>(p.lse_b, t, h);
      const auto poison = [&](const as_tensor& values) {
        std::memset(at<char>(values) +
                        (t * values.stride[0] + h * values.stride[1]) * as_dtype_size(c.dtype),
                    0xff, static_cast<std::size_t>(c.dim * as_dtype_size(c.dtype)));
      };
      switch ((t * c.heads + h) % 9) {
        case 1:
          a = kInfinity;
          poison(p.a);
          break;
        case 2:
          b = -kInfinity;
          poison(p.b);
          break;
        case 3:
          a = -kInfinity;
          b = kInfinity;
          poison(p.a);
          poison(p.b);
          break;
        case 4:
          b = a;
          break;
        case 5:
          b = a + 300.0f;
          break;
        default:
          b = a + 0.1f * b;
          break;
      }
    }
  }
  auto sim = p;
  sim.out = memory.make(AS_F64, shape);
  sim.lse = memory.make(AS_F64, {c.tokens, c.heads});
  if (!run_helper(*reference::sim_lane(), AS_OP_MERGE_STATES, sim, &report)) return report;
  p.out = c.in_place ? p.a : memory.make(c.dtype, shape, 5);
  p.lse = c.in_place ? p.lse_b : memory.make(AS_F32, {c.tokens, c.heads}, 2);
  if (!run_helper(lane, AS_OP_MERGE_STATES, p, &report)) return report;
  judge_by("out", "row", p.out, sim.out, &report);
  judge_by("lse", "lse", p.lse, sim.lse, &report);
  memory.check_guards(&report);
  return report;
}

std::vector<MergeCase> merge_cases() {
  std::vector<MergeCase> cases = {{"no_tokens", 0, 8}, {"no_heads", 3, 0}};
  for (std::int64_t tokens : {1, 4, 74}) {
    for (std::int64_t heads : {1, 8, 17}) {
      for (std::int64_t dim : {1, 64, 512}) {
        const auto i = static_cast<std::int64_t>(cases.size());
        MergeCase c{"t" + std::to_string(tokens) + "_h" + std::to_string(heads) + "_d" +
                        std::to_string(dim),
                    tokens,
                    heads,
                    dim,
                    i % 3 == 0 ? AS_F32 : AS_BF16,
                    i % 2 == 0,
                    i % 4 == 3};
        cases.push_back(c);
      }
    }
  }
  return cases;
}

Report check_gather(const Lane& lane, const GatherCase& c) {
  Report report(case_seed(c.name));
  Random random(report.seed());
  Memory memory;
  TwinCache cache(c.record, c.width, c.lengths, c.pages, random);
  cache.put_all(random, 3.0f);
  std::vector<std::int64_t> slots, rows;
  for (std::size_t r = 0; r < c.lengths.size(); ++r) {
    for (std::int64_t i = 0; i < c.lengths[r]; i += 1 + below(random, 3)) {
      const bool none = below(random, 5) == 0;
      const auto request = static_cast<std::int64_t>(r);
      slots.push_back(none ? -1 : cache.slot(request, i));
      rows.push_back(none ? -1 : cache.row(request, i));
    }
  }
  auto p = helper_params<as_gather_rows_params>();
  const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(slots.size()), c.width};
  p.cache = cache.paged();
  p.slots = memory.ints64(slots);
  p.out = memory.make(c.dtype, shape, 3);
  const std::vector<unsigned char> before = cache.slab();
  if (!run_helper(lane, AS_OP_GATHER_ROWS, p, &report)) return report;
  auto sim = p;
  sim.cache = cache.logical();
  sim.slots = memory.ints64(rows);
  sim.out = memory.make(c.dtype, shape);
  if (!run_helper(*reference::sim_lane(), AS_OP_GATHER_ROWS, sim, &report)) return report;
  judge_equal("out", p.out, sim.out, &report);
  if (cache.slab() != before) report.fail("cache", "was written to");
  memory.check_guards(&report);
  return report;
}

std::vector<GatherCase> gather_cases() {
  struct Kind {
    std::int32_t record, width;
  };
  std::vector<GatherCase> cases;
  for (const Kind& kind : {Kind{AS_RECORD_LATENT, 512}, Kind{AS_RECORD_INDEX_FP8, 128},
                           Kind{AS_RECORD_INDEX_MXFP4, 128}, Kind{AS_RECORD_STATE, 1024}}) {
    for (std::int32_t rows : {1, 2, 53, 64, 256}) {
      for (std::int32_t dtype : {AS_BF16, AS_F32}) {
        if (kind.record == AS_RECORD_STATE && dtype == AS_BF16) continue;
        GatherCase c;
        c.name = "record" + std::to_string(kind.record) + "_rows" + std::to_string(rows) +
                 (dtype == AS_BF16 ? "_bf16" : "_f32");
        c.record = kind.record;
        c.width = kind.width;
        c.lengths = {rows + 3, 0, 129};
        c.pages = {rows, rows % 3 * 16};
        c.dtype = dtype;
        cases.push_back(c);
      }
    }
  }
  return cases;
}

Report check_copy(const Lane& lane, const CopyCase& c) {
  Report report(case_seed(c.name));
  Random random(report.seed());
  Memory memory;
  auto p = helper_params<as_copy_blocks_params>();
  p.from = bytes({c.blocks, c.bytes}, c.pad, random, &memory);
  p.to = c.one_pool ? p.from : bytes({c.blocks, c.bytes}, 2 * c.pad, random, &memory);
  std::vector<std::int64_t> ids(static_cast<std::size_t>(c.blocks));
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), random);
  p.pairs = memory.make(AS_I64, {c.pairs, 2});
  for (std::int64_t n = 0; n < c.pairs; ++n) {
    // In one pool sources and targets are apart.
    const std::int64_t source = c.one_pool ? 2 * n : n,
                       target = c.one_pool ? 2 * n + 1 : c.pairs - n;
    const bool none = n % 5 == 3;
    *at<std::int64_t>(p.pairs, n, 0) =
        none && n % 2 == 0 ? -1 : ids[static_cast<std::size_t>(source)];
    *at<std::int64_t>(p.pairs, n, 1) =
        none && n % 2 == 1 ? -7 : ids[static_cast<std::size_t>(target)];
  }
  p.exchange = c.exchange ? 1 : 0;
  auto sim = p;
  sim.from = copy_of(p.from, &memory);
  sim.to = c.one_pool ? sim.from : copy_of(p.to, &memory);
  if (!run_helper(*reference::sim_lane(), AS_OP_COPY_BLOCKS, sim, &report)) return report;
  if (!run_helper(lane, AS_OP_COPY_BLOCKS, p, &report)) return report;
  judge_equal("from", p.from, sim.from, &report);
  judge_equal("to", p.to, sim.to, &report);
  memory.check_guards(&report);
  return report;
}

std::vector<CopyCase> copy_cases() {
  std::vector<CopyCase> cases;
  for (std::int64_t size : {1, 64, 1728, 37440}) {
    for (std::int64_t pairs : {0, 1, 12}) {
      for (bool exchange : {false, true}) {
        CopyCase c;
        c.name = "bytes" + std::to_string(size) + "_pairs" + std::to_string(pairs) +
                 (exchange ? "_exchange" : "");
        c.blocks = 2 * pairs + 3;
        c.bytes = size;
        c.pad = size % 2 == 1 ? 3 : 16;
        c.pairs = pairs;
        c.exchange = exchange;
        cases.push_back(c);
      }
    }
  }
  cases.push_back({"one_pool", 40, 576, 0, 12, false, true});
  cases.push_back({"one_pool_exchange", 40, 576, 32, 12, true, true});
  return cases;
}

Report check_workspace(const Lane& lane, const WorkspaceCase& c) {
  constexpr std::int32_t kBehind[] = {INT_MAX, 1 << 30, 0, INT_MIN, 1};
  constexpr float kSinkLogits[] = {0.0f, -kInfinity, 3.0f, kInfinity, -80.0f};
  Report report(case_seed(c.name));
  Random random(report.seed());
  Memory memory;
  auto p = helper_params<as_workspace_attention_params>();
  p.q = memory.normals(AS_BF16, {c.tokens, c.heads, AS_HEAD_DIM}, random, 1.0f, 8 * c.pad);
  p.rows = memory.make(AS_BF16, {c.rows, AS_HEAD_DIM}, 8 * c.pad);  // NaN
  p.indices = memory.make(AS_I32, {c.tokens, c.columns}, c.pad);
  p.topk_length = memory.make(AS_I32, {c.tokens});
  p.sinks = memory.make(AS_F32, {c.heads});
  for (std::int64_t h = 0; h < c.heads; ++h) *at<float>(p.sinks, h) = kSinkLogits[h % 5];
  std::vector<bool> used(static_cast<std::size_t>(c.rows));
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    std::int64_t len = c.columns == 0 ? 0 : 1 + below(random, c.columns);
    if (c.lists == Lists::kSomeEmpty && t % 2 == 0) len = 0;
    *at<std::int32_t>(p.topk_length, t) = static_cast<std::int32_t>(len);
    for (std::int64_t k = 0; k < c.columns; ++k) {
      std::int32_t& row = *at<std::int32_t>(p.indices, t, k);
      row = kBehind[(t + k) % 5];
      if (k >= len) continue;
      row = static_cast<std::int32_t>(below(random, c.lists == Lists::kDuplicates ? 3 : c.rows));
      row = std::min(row, static_cast<std::int32_t>(c.rows - 1));
      if (c.lists == Lists::kHoles && below(random, 3) == 0) row = k % 2 == 0 ? -1 : INT_MIN;
      if (row >= 0) used[static_cast<std::size_t>(row)] = true;
    }
  }
  for (std::int64_t row = 0; row < c.rows; ++row) {
    if (!used[static_cast<std::size_t>(row)]) continue;
    for (std::int64_t d = 0; d < AS_HEAD_DIM; ++d) {
      *at<bf16_t>(p.rows, row, d) = to_bf16(normal(random));
    }
  }
  p.scale = 0.04419417382415922;  // 512^-0.5
  p.o = memory.make(AS_BF16, {c.tokens, c.heads, AS_HEAD_DIM}, 8 * c.pad);
  p.lse = memory.make(AS_F32, {c.tokens, c.heads}, c.pad);
  if (!run_helper(lane, AS_OP_WORKSPACE_ATTENTION, p, &report)) return report;
  auto sim = p;
  sim.o = memory.make(AS_F64, {c.tokens, c.heads, AS_HEAD_DIM});
  sim.lse = memory.make(AS_F64, {c.tokens, c.heads});
  if (!run_helper(*reference::sim_lane(), AS_OP_WORKSPACE_ATTENTION, sim, &report)) {
    return report;
  }
  judge_by("o", "attention", p.o, sim.o, &report);
  judge_by("lse", "lse", p.lse, sim.lse, &report);
  memory.check_guards(&report);
  return report;
}

std::vector<WorkspaceCase> workspace_cases() {
  std::vector<WorkspaceCase> cases = {{"no_tokens", 0, 8, 4, 4}, {"no_rows", 2, 8, 0, 0}};
  cases.back().lists = Lists::kSomeEmpty;
  cases.back().tokens = 1;
  const Lists kinds[] = {Lists::kPlain, Lists::kHoles, Lists::kDuplicates, Lists::kSomeEmpty};
  for (std::int64_t tokens : {1, 5, 74}) {
    for (std::int64_t heads : {1, 8, 17, 64, 128}) {
      for (std::int64_t columns : {1, 64, 200}) {
        if (tokens == 74 && heads > 17) continue;
        const std::size_t i = cases.size();
        cases.push_back({"t" + std::to_string(tokens) + "_h" + std::to_string(heads) + "_k" +
                             std::to_string(columns),
                         tokens, heads, 3 + 2 * columns, columns, kinds[i % 4],
                         static_cast<std::int64_t>(i % 3)});
      }
    }
  }
  return cases;
}

Report check_turn(const Lane& lane, const TurnCase& c) {
  Report report(case_seed(c.name));
  Random random(report.seed());
  Memory memory;
  auto p = helper_params<as_inverse_rope_quantise_params>();
  p.o = memory.normals(AS_BF16, {c.tokens, c.heads, c.dim}, random, c.scale, c.pad);
  std::vector<std::int64_t> positions;
  for (std::int64_t t = 0; t < c.tokens; ++t) positions.push_back(below(random, 4096));
  p.positions = memory.ints64(positions);
  p.rope = compressed_rope();
  p.codes = memory.make(AS_U8, {c.tokens, c.heads, c.dim}, c.pad);
  p.scales = memory.make(AS_F32, {c.tokens, c.heads, c.dim / 128}, c.pad);
  if (!run_helper(lane, AS_OP_INVERSE_ROPE_QUANTISE, p, &report)) return report;
  auto sim = p;
  sim.codes = memory.make(AS_F64, {c.tokens, c.heads, c.dim});
  sim.scales = memory.make(AS_F64, {c.tokens, c.heads, c.dim / 128});
  if (!run_helper(*reference::sim_lane(), AS_OP_INVERSE_ROPE_QUANTISE, sim, &report)) {
    return report;
  }
  // The row before quantisation may be one step of bf16 off, a code then one step of e4m3; where
  // that happens to a block's largest value its scale may be the next one.
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    for (std::int64_t h = 0; h < c.heads; ++h) {
      for (std::int64_t d = 0; d < c.dim; ++d) {
        const double scale = static_cast<double>(*at<float>(p.scales, t, h, d / 128));
        const double expected_scale = *at<double>(sim.scales, t, h, d / 128);
        if (scale != expected_scale && scale != 2 * expected_scale && 2 * scale != expected_scale) {
          report.fail("scales", "another power of two");
          return report;
        }
        const double expected = *at<double>(sim.codes, t, h, d);
        const double value =
            scale * static_cast<double>(cpu::e4m3_to_float(*at<unsigned char>(p.codes, t, h, d)));
        const double step = std::max(0.125 * std::fabs(expected), expected_scale * 0x1p-9);
        if (std::fabs(value - expected) > 2 * step) {
          report.fail("codes", std::to_string(value) + " against " + std::to_string(expected));
          return report;
        }
      }
    }
  }
  if (&lane != cpu::lane()) {
    auto own = p;
    own.codes = memory.make(AS_U8, {c.tokens, c.heads, c.dim});
    own.scales = memory.make(AS_F32, {c.tokens, c.heads, c.dim / 128});
    if (!run_helper(*cpu::lane(), AS_OP_INVERSE_ROPE_QUANTISE, own, &report)) {
      return report;
    }
    judge_equal("codes", p.codes, own.codes, &report);
    judge_equal("scales", p.scales, own.scales, &report);
  }
  memory.check_guards(&report);
  return report;
}

std::vector<TurnCase> turn_cases() {
  std::vector<TurnCase> cases = {{"no_tokens", 0, 8},
                                 {"zeros", 3, 8, 512, 0.0f},
                                 {"tiny", 3, 2, 512, 1e-6f},
                                 {"huge", 3, 2, 256, 1e30f}};
  for (std::int64_t tokens : {1, 4, 74}) {
    for (std::int64_t heads : {1, 17, 64}) {
      for (std::int64_t dim : {128, 512}) {
        cases.push_back({"t" + std::to_string(tokens) + "_h" + std::to_string(heads) + "_d" +
                             std::to_string(dim),
                         tokens, heads, dim, 1.0f, static_cast<std::int64_t>(cases.size() % 3)});
      }
    }
  }
  return cases;
}

Report check_fp8(const Lane& lane, const Fp8Case& c) {
  Report report(case_seed(c.name));
  Random random(report.seed());
  Memory memory;
  auto p = helper_params<as_fp8_linear_params>();
  p.x = codes({c.tokens, c.in}, c.pad, random, &memory);
  p.weight = codes({c.out, c.in}, 2 * c.pad, random, &memory);
  const auto scales = [&](std::int64_t rows) {
    as_tensor t = memory.make(AS_F32, {rows, c.in / 128}, c.pad);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t b = 0; b < c.in / 128; ++b) {
        const float power = std::ldexp(1.0f, static_cast<int>(below(random, 6)) - 9);
        *at<float>(t, i, b) = c.odd_scales ? power * (1.0f + 0.1f * normal(random)) : power;
      }
    }
    return t;
  };
  p.x_scale = scales(c.tokens);
  p.weight_scale = scales((c.out + 127) / 128);
  p.y = memory.make(c.dtype, {c.tokens, c.out}, c.pad);
  if (!run_helper(lane, AS_OP_FP8_LINEAR, p, &report)) return report;
  auto sim = p;
  sim.y = memory.make(AS_F64, {c.tokens, c.out});
  if (!run_helper(*reference::sim_lane(), AS_OP_FP8_LINEAR, sim, &report)) return report;
  judge_by("y", "dense", p.y, sim.y, &report);
  memory.check_guards(&report);
  return report;
}

std::vector<Fp8Case> fp8_cases() {
  std::vector<Fp8Case> cases = {{"no_tokens", 0, 128, 4}, {"no_outputs", 3, 128, 0}};
  for (std::int64_t tokens : {1, 4, 74}) {
    for (std::int64_t in : {128, 384, 1024}) {
      for (std::int64_t out : {1, 64, 130, 300}) {
        const std::size_t i = cases.size();
        cases.push_back({"t" + std::to_string(tokens) + "_in" + std::to_string(in) + "_out" +
                             std::to_string(out),
                         tokens, in, out, i % 2 == 0 ? AS_BF16 : AS_F32, i % 3 == 0,
                         static_cast<std::int64_t>(i % 4 == 1   ? 5
                                                   : i % 4 == 2 ? 16
                                                                : 0)});
      }
    }
  }
  return cases;
}

namespace {

void expect_right(const Report& report) { EXPECT_TRUE(report.ok()) << report; }

class MergeStates : public testing::TestWithParam<MergeCase> {};
TEST_P(MergeStates, MatchesTheReference) { expect_right(check_merge(*cpu::lane(), GetParam())); }
INSTANTIATE_TEST_SUITE_P(Shapes, MergeStates, testing::ValuesIn(merge_cases()), name_of<MergeCase>);

class GatherRows : public testing::TestWithParam<GatherCase> {};
TEST_P(GatherRows, MatchesTheReference) { expect_right(check_gather(*cpu::lane(), GetParam())); }
INSTANTIATE_TEST_SUITE_P(Shapes, GatherRows, testing::ValuesIn(gather_cases()),
                         name_of<GatherCase>);

class CopyBlocks : public testing::TestWithParam<CopyCase> {};
TEST_P(CopyBlocks, MatchesTheReference) { expect_right(check_copy(*cpu::lane(), GetParam())); }
INSTANTIATE_TEST_SUITE_P(Shapes, CopyBlocks, testing::ValuesIn(copy_cases()), name_of<CopyCase>);

TEST(CopyBlocks, RefusesPairsThatMeet) {
  Memory memory;
  std::vector<unsigned char> pool(64);
  auto p = helper_params<as_copy_blocks_params>();
  p.from = p.to = make_tensor(pool.data(), {4, 16});
  const auto refusal = [&](std::vector<std::int64_t> ids, bool exchange) {
    p.pairs = make_tensor(ids.data(), {static_cast<std::int64_t>(ids.size()) / 2, 2});
    p.exchange = exchange ? 1 : 0;
    as_error error{};
    const as_op_fn copy = cpu::lane()->ops[AS_OP_COPY_BLOCKS];
    return copy(&p, nullptr, &error) == AS_OK ? std::string() : std::string(error.message);
  };
  EXPECT_EQ(refusal({0, 1, 2, 3}, false), "");
  EXPECT_EQ(refusal({0, 1, 0, 2}, false), "");  // read twice
  EXPECT_NE(refusal({0, 1, 0, 2}, true).find("pairs[0] and pairs[1] meet at block 0"),
            std::string::npos);
  EXPECT_NE(refusal({0, 1, 2, 1}, false).find("meet at block 1"), std::string::npos);
  EXPECT_NE(refusal({0, 1, 1, 2}, false).find("meet at block 1"), std::string::npos);
  EXPECT_NE(refusal({0, 4}, false).find("block 4 of to, which has blocks 0 to 3"),
            std::string::npos);
}

class WorkspaceAttention : public testing::TestWithParam<WorkspaceCase> {};
TEST_P(WorkspaceAttention, MatchesTheReference) {
  expect_right(check_workspace(*cpu::lane(), GetParam()));
}
INSTANTIATE_TEST_SUITE_P(Shapes, WorkspaceAttention, testing::ValuesIn(workspace_cases()),
                         name_of<WorkspaceCase>);

class InverseRopeQuantise : public testing::TestWithParam<TurnCase> {};
TEST_P(InverseRopeQuantise, MatchesTheReference) {
  expect_right(check_turn(*cpu::lane(), GetParam()));
}
INSTANTIATE_TEST_SUITE_P(Shapes, InverseRopeQuantise, testing::ValuesIn(turn_cases()),
                         name_of<TurnCase>);

class Fp8Linear : public testing::TestWithParam<Fp8Case> {};
TEST_P(Fp8Linear, MatchesTheReference) { expect_right(check_fp8(*cpu::lane(), GetParam())); }
INSTANTIATE_TEST_SUITE_P(Shapes, Fp8Linear, testing::ValuesIn(fp8_cases()), name_of<Fp8Case>);

TEST(HelperLane, NamesWhatIsWrong) {
  as_error error{};
  auto p = helper_params<as_fp8_linear_params>();
  std::vector<unsigned char> x(100);
  p.x = make_tensor(x.data(), {1, 100});
  p.y = make_tensor(static_cast<float*>(nullptr), {1, 0});
  const as_op_fn linear = cpu::lane()->ops[AS_OP_FP8_LINEAR];
  EXPECT_EQ(linear(&p, nullptr, &error), AS_BAD_INPUT);
  EXPECT_STREQ(error.message, "fp8_linear: x has 100 inputs; allowed: multiples of 128");
  p.head.struct_size = 3;
  EXPECT_EQ(linear(&p, nullptr, &error), AS_BAD_INPUT);
  for (int id = AS_FIRST_HELPER; id < AS_END_OF_HELPERS; ++id) {
    EXPECT_NE(reference::sim_lane()->ops[id], nullptr);
    EXPECT_NE(cpu::lane()->ops[id], nullptr);
  }
}

}  // namespace
}  // namespace attnscope::properties
