// Projections in FP8 on the CPU lane: codes of the inputs, bytes of a row alone and in a batch,
// what is refused.
#include "tests/unit/kernels/support.h"

namespace attnscope::kernel_tests {
namespace dense_fp8_test {

struct Small {
  Array<bf16_t> x{{4, 256}};
  Array<std::uint8_t> weight{{128, 256}, 0x38};  // ones
  Array<float> scale{{1, 2}, 1.0f};
  Array<bf16_t> y{{4, 128}};

  as_linear_params params() {
    auto p = make_params<as_linear_params>();
    p.x = x.tensor;
    p.weight = weight.tensor;
    p.weight_scale = scale.tensor;
    p.y = y.tensor;
    return p;
  }
};

TEST(LinearFp8, InputsAreQuantisedPerTokenAndBlock) {
  Small s;
  std::fill(s.x.values.begin(), s.x.values.end(), to_bf16(0.0f));
  // Largest 448: scale 1. 17 lies between the codes 16 and 18, and goes to the even one.
  s.x[0] = to_bf16(448.0f);
  s.x[1] = to_bf16(17.0f);
  // Largest 450: scale 2. 225 * 2, and 225 lies between 224 and 240.
  s.x[256] = to_bf16(450.0f);
  // Each block has its own scale: 2^-9 is a code of scale 1, not of scale 2.
  s.x[512] = to_bf16(512.0f);
  s.x[513] = to_bf16(-512.0f);
  s.x[512 + 128] = to_bf16(0x1p-9f);
  s.x[512 + 129] = to_bf16(256.0f);
  s.x[512 + 130] = to_bf16(-256.0f);
  // Below the floor of 1e-4, scale 2^-22: 2^-32 is half of the smallest code and goes to zero.
  s.x[768] = to_bf16(0x1p-32f);
  s.x[769] = to_bf16(0x1p-31f);
  EXPECT_OK(run(AS_OP_Q_B_PROJ, s.params()));
  EXPECT_EQ(to_float(s.y[0]), 464.0f);
  EXPECT_EQ(to_float(s.y[128]), 448.0f);
  EXPECT_EQ(to_float(s.y[256]), 0x1p-9f);
  EXPECT_EQ(to_float(s.y[384]), 0x1p-31f);
}

TEST(LinearFp8, BlocksOfTheWeightHaveTheirScales) {
  Small s;
  std::fill(s.x.values.begin(), s.x.values.end(), to_bf16(0.0f));
  s.x[0] = to_bf16(1.0f);
  s.x[256 + 128] = to_bf16(1.0f);
  s.scale[0] = 0x1p-3f;
  s.scale[1] = 0x1p5f;
  EXPECT_OK(run(AS_OP_WO_B, s.params()));
  for (std::int64_t o = 0; o < 128; ++o) {
    ASSERT_EQ(to_float(s.y[o]), 0x1p-3f);
    ASSERT_EQ(to_float(s.y[128 + o]), 0x1p5f);
  }
}

TEST(LinearFp8, RowsGiveTheSameBytesAloneAndInABatch) {
  Random random(6);
  const std::int64_t rows = 70, in = 384, outs = 256;
  Array<bf16_t> x({rows, in}), batch({rows, outs}), alone({1, outs});
  Array<std::uint8_t> weight({outs, in});
  Array<float> scale({outs / 128, in / 128}, 0x1p-5f);
  fill_normal(x, random);
  for (std::size_t i = 0; i < weight.values.size(); ++i) {
    weight.values[i] = static_cast<std::uint8_t>(i * 37 % 126);
  }
  auto p = make_params<as_linear_params>();
  p.x = x.tensor;
  p.weight = weight.tensor;
  p.weight_scale = scale.tensor;
  p.y = batch.tensor;
  EXPECT_OK(run(AS_OP_Q_KV_A_PROJ, p));
  for (std::int64_t t = 0; t < rows; ++t) {
    p.x = make_tensor(&x[t * in], {1, in});
    p.y = alone.tensor;
    EXPECT_OK(run(AS_OP_Q_KV_A_PROJ, p));
    for (std::int64_t o = 0; o < outs; ++o) ASSERT_EQ(alone[o].bits, batch[t * outs + o].bits);
  }
}

TEST(LinearFp8, RefusesWhatDoesNotFit) {
  const auto refuse = [](auto change, const char* text) {
    Small s;
    auto p = s.params();
    change(p);
    EXPECT_REFUSED(run(AS_OP_Q_B_PROJ, p), text);
  };
  using P = as_linear_params;
  refuse([](P& p) { p.weight_scale = no_tensor(); }, "absent");
  refuse([](P& p) { p.weight_scale.shape[1] = 1; }, "must be [1,2]");
  refuse([](P& p) { p.weight.shape[0] = 127; }, "multiples of 128");
  refuse([](P& p) { p.weight.shape[1] = 200; }, "multiples of 128");
  refuse([](P& p) { p.weight_scale.dtype = AS_BF16; }, "weight_scale is bf16");
  Array<bf16_t> weight({128, 256});
  refuse([&](P& p) { p.weight = weight.tensor; }, "scales belong to codes");
}

}  // namespace dense_fp8_test
}  // namespace attnscope::kernel_tests
