// The dense ops on the GPU against the CPU lane and ref.sim: norms, projections, wo_a, residual,
// inverse RoPE, sampling.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/codec.h"
#include "tests/gpu/support.h"

namespace attnscope::gpu_tests {
namespace {

using properties::below;

struct Shape {
  std::int64_t tokens, in, out;
  Way way;
};

std::string shape_name(const testing::TestParamInfo<Shape>& info) {
  const Shape& s = info.param;
  return "t" + std::to_string(s.tokens) + "_in" + std::to_string(s.in) + "_out" +
         std::to_string(s.out) + "_" + way_name(s.way);
}
void PrintTo(const Shape& s, std::ostream* out) { *out << shape_name({s, 0}); }

std::vector<Shape> shapes(std::initializer_list<std::int64_t> tokens,
                          std::initializer_list<std::pair<std::int64_t, std::int64_t>> sizes) {
  std::vector<Shape> all;
  for (std::int64_t t : tokens) {
    for (const auto& [in, out] : sizes) {
      for (Way way : {Way::kHost, Way::kDevice}) all.push_back({t, in, out, way});
    }
  }
  return all;
}

class GpuDense : public testing::TestWithParam<Shape> {
 protected:
  GpuDense() : report(1), random(7) {}
  void finish(const OpParams& engine) {
    check_against_cpu(GetParam().way, engine, &memory, &report);
    memory.check_guards(&report);
    check_against_sim(engine, &memory, &report);
    EXPECT_TRUE(report.ok()) << report;
  }
  Report report;
  Random random;
  Memory memory;
};

class GpuLinear : public GpuDense {};

TEST_P(GpuLinear, MatchesTheCpuLaneAndRefSim) {
  const Shape& s = GetParam();
  for (const as_op_id op : {AS_OP_Q_KV_A_PROJ, AS_OP_COMPRESSOR_PROJ}) {
    OpParams engine;
    auto& p = engine.init<as_linear_params>(op);
    p.x = memory.normals(AS_BF16, {s.tokens, s.in}, random, 1.0f, s.tokens % 3);
    p.weight = memory.normals(AS_BF16, {s.out, s.in}, random, 0.05f);
    p.y = memory.make(op == AS_OP_COMPRESSOR_PROJ ? AS_F32 : AS_BF16, {s.tokens, s.out}, 4);
    finish(engine);
  }
}
INSTANTIATE_TEST_SUITE_P(
    Shapes, GpuLinear,
    testing::ValuesIn(
        shapes({1, 4, 74, 321},
               {{512, 640}, {128, 4096}, {64, 8}, {1, 1}, {77, 33}, {1024, 130}, {4096, 64}})),
    shape_name);

// Rows of 16-byte pieces: up to 8 tokens are the kernel of a few rows, 9 are not. Neither inputs
// nor outputs come to a whole of anything in some of the shapes.
class GpuFewTokens : public GpuDense {};

TEST_P(GpuFewTokens, MatchTheCpuLaneAndRefSim) {
  const Shape& s = GetParam();
  for (const as_op_id op : {AS_OP_Q_KV_A_PROJ, AS_OP_COMPRESSOR_PROJ, AS_OP_INDEXER_COMPRESSOR_PROJ,
                            AS_OP_INDEXER_WEIGHTS_PROJ}) {
    const bool wide = op == AS_OP_COMPRESSOR_PROJ || op == AS_OP_INDEXER_COMPRESSOR_PROJ;
    OpParams engine;
    auto& p = engine.init<as_linear_params>(op);
    p.x = memory.normals(AS_BF16, {s.tokens, s.in}, random, 1.0f, 8 * (s.tokens % 3));
    p.weight = memory.normals(AS_BF16, {s.out, s.in}, random, 0.05f);
    p.y = memory.make(wide ? AS_F32 : AS_BF16, {s.tokens, s.out}, 3);
    finish(engine);
  }
  OpParams grouped;
  auto& p = grouped.init<as_grouped_linear_params>(AS_OP_WO_A);
  p.x = memory.normals(AS_BF16, {s.tokens, 3, s.in}, random, 1.0f, 8);
  p.weight = memory.normals(AS_BF16, {3, s.out, s.in}, random, 0.05f);
  p.y = memory.make(AS_BF16, {s.tokens, 3, s.out}, 5);
  finish(grouped);
}
INSTANTIATE_TEST_SUITE_P(
    Shapes, GpuFewTokens,
    testing::ValuesIn(shapes({1, 2, 3, 5, 7, 8, 9, 13, 16, 17},
                             {{8, 1}, {24, 17}, {32, 16}, {136, 31}, {512, 40}, {1000, 33}})),
    shape_name);
INSTANTIATE_TEST_SUITE_P(
    Large, GpuFewTokens,
    testing::ValuesIn(shapes({1, 6, 8, 16}, {{1024, 130}, {4096, 64}, {7168, 48}, {8192, 32}})),
    shape_name);
INSTANTIATE_TEST_SUITE_P(Compressor, GpuFewTokens,
                         testing::ValuesIn(shapes({1, 8}, {{4096, 512}, {4096, 2048}})),
                         shape_name);

// A token's outputs are the same bytes whichever tokens stand beside it, bf16 and fp32.
TEST(GpuFewTokensBesideOthers, GiveTheSameBytes) {
  Random random(3);
  Memory memory;
  constexpr std::int64_t kIn = 1016, kOut = 70, kMost = 8;
  const as_tensor x = memory.normals(AS_BF16, {kMost, kIn}, random);
  const as_tensor weight = memory.normals(AS_BF16, {kOut, kIn}, random, 0.05f);
  for (const as_op_id op : {AS_OP_Q_KV_A_PROJ, AS_OP_COMPRESSOR_PROJ}) {
    const as_dtype type = op == AS_OP_COMPRESSOR_PROJ ? AS_F32 : AS_BF16;
    std::vector<std::vector<std::uint8_t>> outputs;
    for (const std::int64_t tokens : {1, 2, 4, 7, 8}) {
      OpParams engine;
      auto& p = engine.init<as_linear_params>(op);
      p.x = x;
      p.x.shape[0] = tokens;
      p.weight = weight;
      p.y = memory.make(type, {tokens, kOut});
      as_error error{};
      ASSERT_EQ(lane(Way::kHost).ops[op](engine.data(), nullptr, &error), AS_OK) << error.message;
      const auto* first = at<std::uint8_t>(p.y);
      outputs.emplace_back(first, first + kOut * (type == AS_F32 ? 4 : 2));
      EXPECT_EQ(outputs.back(), outputs.front()) << tokens;
    }
  }
}

// Projections in FP8. With dense scales the library takes what it can; scales on the GPU whose rows
// lie apart it does not take, so that our own kernel runs (host tensors become dense on their way).
class GpuLinearFp8 : public GpuDense {
 protected:
  void check(std::int64_t scale_pad) {
    const Shape& s = GetParam();
    for (const as_op_id op : {AS_OP_Q_KV_A_PROJ, AS_OP_WO_B}) {
      OpParams engine;
      auto& p = engine.init<as_linear_params>(op);
      p.x = memory.normals(AS_BF16, {s.tokens, s.in}, random, 1.0f, s.tokens % 3);
      p.weight = memory.make(AS_U8, {s.out, s.in});
      for (std::int64_t o = 0; o < s.out; ++o) {
        for (std::int64_t i = 0; i < s.in; ++i) {
          // About normal, as weights are: largest 448.
          const float code = std::clamp(128.0f * properties::normal(random), -448.0f, 448.0f);
          *at<std::uint8_t>(p.weight, o, i) = cpu::float_to_e4m3(code);
        }
      }
      p.weight_scale = memory.make(AS_F32, {s.out / 128, s.in / 128}, scale_pad);
      for (std::int64_t o = 0; o < s.out / 128; ++o) {
        for (std::int64_t b = 0; b < s.in / 128; ++b) {
          *at<float>(p.weight_scale, o, b) =
              std::ldexp(1.0f, static_cast<int>(-12 - below(random, 4)));
        }
      }
      p.y = memory.make(AS_BF16, {s.tokens, s.out}, 8);
      report.judge_as(scale_pad > 0 && s.way == Way::kDevice ? "cpu" : "cuda");
      finish(engine);
    }
  }
};

TEST_P(GpuLinearFp8, MatchesTheCpuLaneAndRefSim) { check(0); }
TEST_P(GpuLinearFp8, OwnKernelMatchesTheCpuLaneAndRefSim) { check(3); }
// Blocks of 128 x 128, tiny, and the projections of v4-flash and v4-pro cut to some of their
// outputs where those are many.
INSTANTIATE_TEST_SUITE_P(Shapes, GpuLinearFp8,
                         testing::ValuesIn(shapes({1, 4, 74, 321}, {{128, 128},
                                                                    {384, 256},
                                                                    {512, 640},
                                                                    {4096, 1536},
                                                                    {1024, 2048},
                                                                    {8192, 512},
                                                                    {7168, 2048},
                                                                    {1536, 1024},
                                                                    {16384, 256}})),
                         shape_name);

class GpuGroupedLinear : public GpuDense {};

TEST_P(GpuGroupedLinear, MatchesTheCpuLaneAndRefSim) {
  const Shape& s = GetParam();
  for (std::int64_t groups : {1, 2, 8}) {
    OpParams engine;
    auto& p = engine.init<as_grouped_linear_params>(AS_OP_WO_A);
    p.x = memory.normals(AS_BF16, {s.tokens, groups, s.in}, random, 1.0f, 8);
    p.weight = memory.normals(AS_BF16, {groups, s.out, s.in}, random, 0.05f);
    p.y = memory.make(AS_BF16, {s.tokens, groups, s.out}, 3);
    finish(engine);
  }
}
INSTANTIATE_TEST_SUITE_P(Shapes, GpuGroupedLinear,
                         testing::ValuesIn(shapes({1, 4, 74}, {{512, 64}, {128, 9}, {33, 32}})),
                         shape_name);

class GpuNorm : public GpuDense {};

TEST_P(GpuNorm, MatchesTheCpuLaneAndRefSim) {
  const Shape& s = GetParam();
  OpParams engine;
  auto& p = engine.init<as_rms_norm_params>(AS_OP_ATTN_NORM);
  p.x = memory.normals(AS_BF16, {s.tokens, s.in}, random, 2.0f, s.tokens % 4);
  p.weight = memory.normals(AS_BF16, {s.in}, random);
  p.y = memory.make(AS_BF16, {s.tokens, s.in}, 1);
  p.eps = 1e-6;
  finish(engine);
  OpParams both;
  auto& q = both.init<as_q_kv_norm_params>(AS_OP_Q_KV_NORM);
  q.qkv = memory.normals(AS_BF16, {s.tokens, s.in + s.out}, random, 1.0f, 2);
  q.q_weight = memory.normals(AS_BF16, {s.in}, random);
  q.kv_weight = memory.normals(AS_BF16, {s.out}, random);
  q.qr = memory.make(AS_BF16, {s.tokens, s.in});
  q.kv = memory.make(AS_BF16, {s.tokens, s.out}, 3);
  q.eps = 1e-6;
  finish(both);
}
INSTANTIATE_TEST_SUITE_P(Shapes, GpuNorm,
                         testing::ValuesIn(shapes({1, 4, 74, 321},
                                                  {{512, 512}, {4096, 512}, {7168, 512}, {33, 5}})),
                         shape_name);

class GpuDraftNorm : public GpuDense {};

TEST_P(GpuDraftNorm, MatchesTheCpuLaneAndRefSim) {
  const Shape& s = GetParam();
  OpParams engine;
  auto& p = engine.init<as_draft_norm_params>(AS_OP_DRAFT_NORM);
  std::vector<std::int32_t> next;
  std::vector<std::int64_t> positions;
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    next.push_back(static_cast<std::int32_t>(below(random, s.out + 1)) - 1);
    positions.push_back(below(random, 4));
  }
  p.hidden = memory.normals(AS_BF16, {s.tokens, s.in}, random, 2.0f, s.tokens % 4);
  p.embedding = memory.normals(AS_BF16, {s.out, s.in}, random, 0.1f);
  p.tokens = memory.ints(next, {s.tokens});
  p.positions = memory.ints64(positions);
  p.h_weight = memory.normals(AS_BF16, {s.in}, random);
  p.e_weight = memory.normals(AS_BF16, {s.in}, random);
  p.h = memory.make(AS_BF16, {s.tokens, s.in}, 1);
  p.e = memory.make(AS_BF16, {s.tokens, s.in});
  p.eps = 1e-6;
  finish(engine);
}
INSTANTIATE_TEST_SUITE_P(Shapes, GpuDraftNorm,
                         testing::ValuesIn(shapes({1, 4, 74, 321},
                                                  {{512, 256}, {4096, 256}, {7168, 256}, {33, 5}})),
                         shape_name);

class GpuElementwise : public GpuDense {};

TEST_P(GpuElementwise, MatchesTheCpuLaneAndRefSim) {
  const Shape& s = GetParam();
  OpParams sum;
  auto& r = sum.init<as_residual_params>(AS_OP_RESIDUAL);
  r.h = memory.normals(AS_BF16, {s.tokens, s.in}, random, 1.0f, 1);
  r.y = memory.normals(AS_BF16, {s.tokens, s.in}, random);
  r.out = memory.make(AS_BF16, {s.tokens, s.in}, 2);
  finish(sum);
  OpParams turn;
  auto& i = turn.init<as_inverse_rope_params>(AS_OP_INVERSE_ROPE);
  i.o = memory.normals(AS_BF16, {s.tokens, s.out, 512}, random, 1.0f, 1);
  std::vector<std::int64_t> positions;
  for (std::int64_t t = 0; t < s.tokens; ++t) positions.push_back(below(random, 4096));
  i.positions = memory.ints64(positions);
  i.rope = properties::compressed_rope();
  i.out = memory.make(AS_BF16, {s.tokens, s.out, 512}, 5);
  finish(turn);
  OpParams pick;
  auto& p = pick.init<as_sample_params>(AS_OP_SAMPLE);
  p.logits = memory.normals(AS_F32, {s.tokens, s.in}, random, 1.0f, 2);
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    for (std::int64_t v = 0; v < s.in; ++v) {
      float& x = *at<float>(p.logits, t, v);
      if (t % 3 == 0) x = static_cast<float>(below(random, 3));
      if (t % 4 == 1 || below(random, 9) == 0) x = std::numeric_limits<float>::quiet_NaN();
    }
  }
  p.tokens = memory.make(AS_I32, {s.tokens});
  finish(pick);
}
INSTANTIATE_TEST_SUITE_P(Shapes, GpuElementwise,
                         testing::ValuesIn(shapes({1, 4, 74}, {{256, 8}, {4096, 64}, {77, 1}})),
                         shape_name);

}  // namespace
}  // namespace attnscope::gpu_tests
