// Norms, projections and the residual.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "reference/codec.h"
#include "reference/matmul.h"
#include "reference/norm.h"
#include "reference/ops.h"
#include "reference/tensors.h"

namespace attnscope::reference {

namespace {

constexpr std::int64_t kBlock = 128;  // inputs that share a scale in FP8
constexpr std::int64_t kGrain = 32;   // tokens of a thread at least

// What a projection in FP8 makes of its inputs: codes under a scale for each block, as values.
void quantise(double* row, std::int64_t n) {
  for (double* x = row; x < row + n; x += kBlock) {
    const int exponent = fp8_scale_exponent(abs_max(x, kBlock));
    const double scale = std::ldexp(1.0, exponent), inverse = inverse_scale(exponent);
    for (std::int64_t i = 0; i < kBlock; ++i) x[i] = e4m3_value(e4m3_code(x[i] * inverse)) * scale;
  }
}

// A weight's codes and scales fit each other.
void check_codes(const as_linear_params& p) {
  for (int side = 0; side < 2 && p.weight.rank == 2; ++side) {
    if (p.weight.shape[side] % kBlock == 0) continue;
    throw BadInput("weight has codes of shape [" + std::to_string(p.weight.shape[0]) + "," +
                   std::to_string(p.weight.shape[1]) + "]; both sides must be multiples of 128");
  }
  if (!present(p.weight_scale)) throw BadInput("weight has codes, but weight_scale is absent");
}

void linear(const as_linear_params& p, const Precision& precision, bool bf16) {
  const FloatRows x(p.x, "x", {kAny, kAny});
  const std::int64_t tokens = x.rows();
  const std::int64_t in = x.cols();
  const FloatRows y(p.y, "y", {tokens, kAny});
  const bool codes = p.weight.dtype == AS_U8;
  check(p.weight, "weight", codes ? Kind::kBytes : Kind::kFloat, {y.cols(), in});
  if (codes) check_codes(p);
  if (tokens == 0) return;

  const DenseInput dense(x);
  const double* input = dense.data();
  std::vector<double> quantised;
  if (codes && !precision.exact) {
    quantised.assign(input, input + tokens * in);
    for_rows(tokens, kGrain, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t t = first; t < last; ++t) quantise(quantised.data() + t * in, in);
    });
    input = quantised.data();
  }
  Weight weight(p.weight, p.weight_scale, tokens, precision.fp32_sums);
  std::vector<double> block(static_cast<std::size_t>(tokens * weight.block()));
  for (std::int64_t begin = 0; begin < y.cols(); begin += weight.block()) {
    const std::int64_t end = std::min(begin + weight.block(), y.cols());
    weight.multiply(input, begin, end, block.data());
    for_rows(tokens, kGrain, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t t = first; t < last; ++t) {
        double* values = block.data() + t * (end - begin);
        if (bf16) {
          precision.bf16(values, end - begin);
        } else {
          precision.fp32(values, end - begin);
        }
        y.store(t, begin, end - begin, values);
      }
    });
  }
}

}  // namespace

void linear_bf16(const as_linear_params& p, const Precision& precision) {
  linear(p, precision, true);
}

void linear_fp32(const as_linear_params& p, const Precision& precision) {
  linear(p, precision, false);
}

void grouped_linear(const as_grouped_linear_params& p, const Precision& precision) {
  const FloatRows x(p.x, "x", {kAny, kAny, kAny});
  const std::int64_t groups = x.size(1);
  check(p.weight, "weight", Kind::kFloat, {groups, kAny, x.cols()});
  check(p.y, "y", Kind::kFloat, {x.size(0), groups, p.weight.shape[1]});

  // One group is a projection of its own: the same tensors without their group dimension.
  const auto group_of = [](const as_tensor& t, int dim, std::int64_t g) {
    as_tensor slice{};
    slice.data = static_cast<char*>(t.data) + g * t.stride[dim] * as_dtype_size(t.dtype);
    slice.dtype = t.dtype;
    slice.rank = 2;
    for (int from = 0, to = 0; from < 3; ++from) {
      if (from == dim) continue;
      slice.shape[to] = t.shape[from];
      slice.stride[to++] = t.stride[from];
    }
    return slice;
  };
  for (std::int64_t g = 0; g < groups; ++g) {
    as_linear_params one{};
    one.x = group_of(p.x, 1, g);
    one.weight = group_of(p.weight, 0, g);
    one.y = group_of(p.y, 1, g);
    linear(one, precision, true);
  }
}

void rms_norm(const as_rms_norm_params& p, const Precision& precision) {
  const FloatRows x(p.x, "x", {kAny, kAny});
  const FloatRows y(p.y, "y", {x.rows(), x.cols()});
  const std::vector<double> weight = FloatRows(p.weight, "weight", {x.cols()}).load_all();
  std::vector<double> values(static_cast<std::size_t>(x.cols()));
  for (std::int64_t t = 0; t < x.rows(); ++t) {
    x.load(t, values.data());
    normalise(values.data(), x.cols(), p.eps, weight.data(), precision);
    precision.bf16(values.data(), x.cols());
    y.store(t, values.data());
  }
}

void q_kv_norm(const as_q_kv_norm_params& p, const Precision& precision) {
  const FloatRows qr(p.qr, "qr", {kAny, kAny});
  const FloatRows kv(p.kv, "kv", {qr.rows(), kAny});
  const std::int64_t q_lora = qr.cols();
  const FloatRows qkv(p.qkv, "qkv", {qr.rows(), q_lora + kv.cols()});
  const std::vector<double> q_weight = FloatRows(p.q_weight, "q_weight", {q_lora}).load_all();
  const std::vector<double> kv_weight = FloatRows(p.kv_weight, "kv_weight", {kv.cols()}).load_all();
  std::vector<double> values(static_cast<std::size_t>(qkv.cols()));
  for (std::int64_t t = 0; t < qkv.rows(); ++t) {
    qkv.load(t, values.data());
    normalise(values.data(), q_lora, p.eps, q_weight.data(), precision);
    normalise(values.data() + q_lora, kv.cols(), p.eps, kv_weight.data(), precision);
    precision.bf16(values.data(), qkv.cols());
    qr.store(t, values.data());
    kv.store(t, values.data() + q_lora);
  }
}

void residual(const as_residual_params& p, const Precision& precision) {
  const FloatRows h(p.h, "h", {kAny, kAny});
  const FloatRows y(p.y, "y", {h.rows(), h.cols()});
  const FloatRows out(p.out, "out", {h.rows(), h.cols()});
  std::vector<double> sum(static_cast<std::size_t>(h.cols()));
  std::vector<double> addend(sum.size());
  for (std::int64_t t = 0; t < h.rows(); ++t) {
    h.load(t, sum.data());
    y.load(t, addend.data());
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += addend[i];
    precision.bf16(sum.data(), h.cols());
    out.store(t, sum.data());
  }
}

}  // namespace attnscope::reference
