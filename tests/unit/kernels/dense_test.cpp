// Norms, projections, residual against float64.
#include "tests/unit/kernels/support.h"

namespace attnscope::kernel_tests {
namespace dense_test {

double rms_factor(const bf16_t* x, std::int64_t n, double eps) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < n; ++i) sum += std::pow(static_cast<double>(to_float(x[i])), 2);
  return 1.0 / std::sqrt(sum / static_cast<double>(n) + eps);
}

TEST(RmsNorm, WithinOneUlp) {
  Random random(1);
  for (std::int64_t width : {1, 7, 64, 512, 4099}) {
    Array<bf16_t> x({3, width}), weight({width}), y({3, width});
    fill_normal(x, random, 3.0f);
    fill_normal(weight, random);
    auto p = make_params<as_rms_norm_params>();
    p.x = x.tensor;
    p.weight = weight.tensor;
    p.y = y.tensor;
    p.eps = 1e-6;
    EXPECT_OK(run(AS_OP_ATTN_NORM, p));
    for (std::int64_t t = 0; t < 3; ++t) {
      const double factor = rms_factor(&x[t * width], width, 1e-6);
      for (std::int64_t i = 0; i < width; ++i) {
        const double exact = static_cast<double>(to_float(x[t * width + i])) * factor *
                             static_cast<double>(to_float(weight[i]));
        ASSERT_LE(bf16_steps(y[t * width + i], exact), 1) << width << " " << i;
      }
    }
  }
}

TEST(RmsNorm, MayMultiplyByOnePlusItsWeight) {
  Random random(3);
  Array<bf16_t> x({2, 40}), weight({40}), y({2, 40});
  fill_normal(x, random);
  fill_normal(weight, random);
  auto p = make_params<as_rms_norm_params>();
  p.x = x.tensor;
  p.weight = weight.tensor;
  p.y = y.tensor;
  p.eps = 1e-6;
  p.weight_plus_one = 1;
  EXPECT_OK(run(AS_OP_ATTN_NORM, p));
  for (std::int64_t t = 0; t < 2; ++t) {
    const double factor = rms_factor(&x.values[static_cast<std::size_t>(t * 40)], 40, 1e-6);
    for (std::int64_t i = 0; i < 40; ++i) {
      const auto at = static_cast<std::size_t>(t * 40 + i);
      const double w =
          1.0 + static_cast<double>(to_float(weight.values[static_cast<std::size_t>(i)]));
      const double exact = static_cast<double>(to_float(x.values[at])) * factor * w;
      ASSERT_LE(bf16_steps(y.values[at], exact), 1) << t << " " << i;
    }
  }
}

TEST(RmsNorm, ZeroRowStaysZero) {
  Array<bf16_t> x({1, 8}), weight({8}, to_bf16(1.0f)), y({1, 8}, to_bf16(9.0f));
  auto p = make_params<as_rms_norm_params>();
  p.x = x.tensor;
  p.weight = weight.tensor;
  p.y = y.tensor;
  p.eps = 1e-6;
  EXPECT_OK(run(AS_OP_FINAL_NORM, p));
  for (bf16_t v : y.values) EXPECT_EQ(v.bits, 0);
}

TEST(QKvNorm, NormalisesBothHalvesAlone) {
  Random random(2);
  const std::int64_t q_lora = 96;
  Array<bf16_t> qkv({2, q_lora + 512}), q_weight({q_lora}), kv_weight({512});
  Array<bf16_t> qr({2, q_lora}), kv({2, 512});
  fill_normal(qkv, random);
  fill_normal(q_weight, random);
  fill_normal(kv_weight, random);
  auto p = make_params<as_q_kv_norm_params>();
  p.qkv = qkv.tensor;
  p.q_weight = q_weight.tensor;
  p.kv_weight = kv_weight.tensor;
  p.qr = qr.tensor;
  p.kv = kv.tensor;
  p.eps = 1e-6;
  EXPECT_OK(run(AS_OP_Q_KV_NORM, p));
  for (std::int64_t t = 0; t < 2; ++t) {
    const bf16_t* row = &qkv[t * (q_lora + 512)];
    const double q_factor = rms_factor(row, q_lora, 1e-6);
    const double kv_factor = rms_factor(row + q_lora, 512, 1e-6);
    for (std::int64_t i = 0; i < q_lora; ++i) {
      const double exact = static_cast<double>(to_float(row[i])) * q_factor *
                           static_cast<double>(to_float(q_weight[i]));
      ASSERT_LE(bf16_steps(qr[t * q_lora + i], exact), 1);
    }
    for (std::int64_t i = 0; i < 512; ++i) {
      const double exact = static_cast<double>(to_float(row[q_lora + i])) * kv_factor *
                           static_cast<double>(to_float(kv_weight[i]));
      ASSERT_LE(bf16_steps(kv[t * 512 + i], exact), 1);
    }
  }
}

// Product in float64, and the sum of magnitudes that bounds its rounding.
std::pair<double, double> product(const bf16_t* x, const bf16_t* w, std::int64_t n) {
  double sum = 0.0, magnitude = 0.0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double term = static_cast<double>(to_float(x[i])) * static_cast<double>(to_float(w[i]));
    sum += term;
    magnitude += std::fabs(term);
  }
  return {sum, magnitude};
}

TEST(Linear, MatchesFloat64OverShapes) {
  Random random(3);
  const std::int64_t shapes[][3] = {{1, 1, 1},   {1, 7, 33},    {2, 3, 31},
                                    {3, 65, 64}, {5, 9, 128},   {7, 66, 70},
                                    {6, 4, 512}, {13, 130, 96}, {50, 12, 40}};
  for (const auto& [rows, outs, in] : shapes) {
    Array<bf16_t> x({rows, in}), weight({outs, in}), rounded({rows, outs});
    Array<float> wide({rows, outs});
    fill_normal(x, random);
    fill_normal(weight, random);
    auto p = make_params<as_linear_params>();
    p.x = x.tensor;
    p.weight = weight.tensor;
    p.y = wide.tensor;
    EXPECT_OK(run(AS_OP_LM_HEAD, p));
    p.y = rounded.tensor;
    EXPECT_OK(run(AS_OP_WO_B, p));
    for (std::int64_t t = 0; t < rows; ++t) {
      for (std::int64_t o = 0; o < outs; ++o) {
        const auto [sum, magnitude] = product(&x[t * in], &weight[o * in], in);
        const float y = wide[t * outs + o];
        ASSERT_NEAR(static_cast<double>(y), sum, 1e-6 * magnitude)
            << rows << "x" << outs << "x" << in;
        ASSERT_EQ(rounded[t * outs + o].bits, cpu::float_to_bf16(y));
      }
    }
  }
}

TEST(Linear, RowsGiveTheSameBytesAloneAndInABatch) {
  Random random(4);
  const std::int64_t rows = 20, in = 200, outs = 70;
  Array<bf16_t> x({rows, in}), weight({outs, in});
  Array<float> batch({rows, outs}), alone({1, outs});
  fill_normal(x, random);
  fill_normal(weight, random);
  auto p = make_params<as_linear_params>();
  p.x = x.tensor;
  p.weight = weight.tensor;
  p.y = batch.tensor;
  EXPECT_OK(run(AS_OP_COMPRESSOR_PROJ, p));
  for (std::int64_t t = 0; t < rows; ++t) {
    p.x = make_tensor(&x[t * in], {1, in});
    p.y = alone.tensor;
    EXPECT_OK(run(AS_OP_COMPRESSOR_PROJ, p));
    for (std::int64_t o = 0; o < outs; ++o) ASSERT_EQ(alone[o], batch[t * outs + o]);
  }
}

TEST(Linear, StridedRowsAreRead) {
  Random random(5);
  Array<bf16_t> x({4, 80}), weight({3, 64});
  Array<float> y({4, 3}), dense_y({4, 3});
  fill_normal(x, random);
  fill_normal(weight, random);
  auto p = make_params<as_linear_params>();
  p.x = x.tensor;
  p.x.shape[1] = 64;  // the first 64 of 80 columns
  p.weight = weight.tensor;
  p.y = y.tensor;
  EXPECT_OK(run(AS_OP_LM_HEAD, p));
  for (std::int64_t t = 0; t < 4; ++t) {
    for (std::int64_t o = 0; o < 3; ++o) {
      const auto [sum, magnitude] = product(&x[t * 80], &weight[o * 64], 64);
      EXPECT_NEAR(static_cast<double>(y[t * 3 + o]), sum, 1e-6 * magnitude);
    }
  }
}

TEST(GroupedLinear, EveryGroupUsesItsWeights) {
  Random random(6);
  const std::int64_t rows = 3, groups = 2, in = 100, outs = 10;
  Array<bf16_t> x({rows, groups, in}), weight({groups, outs, in}), y({rows, groups, outs});
  fill_normal(x, random);
  fill_normal(weight, random);
  auto p = make_params<as_grouped_linear_params>();
  p.x = x.tensor;
  p.weight = weight.tensor;
  p.y = y.tensor;
  EXPECT_OK(run(AS_OP_WO_A, p));
  for (std::int64_t t = 0; t < rows; ++t) {
    for (std::int64_t g = 0; g < groups; ++g) {
      for (std::int64_t o = 0; o < outs; ++o) {
        const auto [sum, magnitude] =
            product(&x[(t * groups + g) * in], &weight[(g * outs + o) * in], in);
        const double got = static_cast<double>(to_float(y[(t * groups + g) * outs + o]));
        ASSERT_NEAR(got, sum, std::fabs(sum) / 256 + 1e-6 * magnitude);
      }
    }
  }
}

TEST(Residual, AddsAndMayAlias) {
  Random random(7);
  Array<bf16_t> h({5, 77}), y({5, 77}), out({5, 77});
  fill_normal(h, random);
  fill_normal(y, random);
  auto p = make_params<as_residual_params>();
  p.h = h.tensor;
  p.y = y.tensor;
  p.out = out.tensor;
  EXPECT_OK(run(AS_OP_RESIDUAL, p));
  for (std::int64_t i = 0; i < 5 * 77; ++i) {
    ASSERT_EQ(out[i].bits, cpu::float_to_bf16(to_float(h[i]) + to_float(y[i])));
  }
  p.out = h.tensor;
  EXPECT_OK(run(AS_OP_RESIDUAL, p));
  for (std::int64_t i = 0; i < 5 * 77; ++i) ASSERT_EQ(h[i].bits, out[i].bits);
}

}  // namespace dense_test
}  // namespace attnscope::kernel_tests
