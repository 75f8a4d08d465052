// rms_norm (attn_norm, final_norm) and q_kv_norm: y = x * rsqrt(mean(x^2) + eps) * weight, of the
// first also with 1 + weight.
#include "kernels/cpu/codec.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

using Bits = std::uint16_t;

void norm_row(const Bits* x, const as_tensor& weight, double eps, Bits* y, bool plus_one = false) {
  const simd::Kernels& simd = simd::kernels();
  const std::int64_t n = weight.shape[0];
  const float factor = inverse_rms(simd.sum_squares_bf16(x, n), n, eps);
  if (!plus_one) return simd.scale_bf16(x, factor, at<Bits>(weight), n, y);
  const Bits* w = at<Bits>(weight);
  for (std::int64_t i = 0; i < n; ++i) {
    y[i] = float_to_bf16(bf16_to_float(x[i]) * factor * (1.0f + bf16_to_float(w[i])));
  }
}

}  // namespace

void rms_norm(const as_rms_norm_params& p, const as_call* call, Check& check) {
  if (!check.tensor("weight", p.weight, AS_BF16, {kAny})) return;
  const std::int64_t width = p.weight.shape[0];
  if (!check.tensor("x", p.x, AS_BF16, {kAny, width}) ||
      !check.tensor("y", p.y, AS_BF16, {p.x.shape[0], width})) {
    return;
  }
  parallel_for(call, p.x.shape[0], 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      norm_row(at<Bits>(p.x, t), p.weight, p.eps, at<Bits>(p.y, t), p.weight_plus_one != 0);
    }
  });
}

void q_kv_norm(const as_q_kv_norm_params& p, const as_call* call, Check& check) {
  if (!check.tensor("q_weight", p.q_weight, AS_BF16, {kAny}) ||
      !check.tensor("kv_weight", p.kv_weight, AS_BF16, {kAny}) ||
      !check.tensor("qkv", p.qkv, AS_BF16, {kAny, kAny}) ||
      !check.range("columns of qkv", p.qkv.shape[1], p.q_weight.shape[0] + p.kv_weight.shape[0],
                   INT32_MAX)) {
    return;
  }
  const std::int64_t tokens = p.qkv.shape[0];
  const std::int64_t q_width = p.q_weight.shape[0];
  if (!check.tensor("qr", p.qr, AS_BF16, {tokens, q_width}) ||
      !check.tensor("kv", p.kv, AS_BF16, {tokens, p.kv_weight.shape[0]})) {
    return;
  }
  parallel_for(call, tokens, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const Bits* row = at<Bits>(p.qkv, t);
      norm_row(row, p.q_weight, p.eps, at<Bits>(p.qr, t));
      norm_row(row + q_width, p.kv_weight, p.eps, at<Bits>(p.kv, t));
    }
  });
}

}  // namespace attnscope::cpu
