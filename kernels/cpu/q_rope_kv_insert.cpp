// q_rope_kv_insert: per-head q norm and RoPE; KV RoPE, FP8 quantisation, insertion into the SWA
// cache.
#include <cmath>

#include "kernels/cpu/norm.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/quantise.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/simd/simd.h"

namespace attnscope::cpu {
namespace {

using Bits = std::uint16_t;
using Params = as_q_rope_kv_insert_params;

bool check_params(const Params& p, Check& check) {
  if (!check.tensor("slots", p.slots, AS_I64, {kAny})) return false;
  const std::int64_t tokens = p.slots.shape[0];
  if (!check.cache("cache", p.cache, AS_RECORD_LATENT, AS_HEAD_DIM) ||
      !check.slots("slots", p.slots, p.cache)) {
    return false;
  }
  if (!check.range("q_norm", p.q_norm, AS_Q_NORM_FP32, AS_Q_NORM_BF16_FACTOR) ||
      !check.range("scale_floor", p.scale_floor, AS_SCALE_FLOOR_1E4, AS_SCALE_FLOOR_1E8)) {
    return false;
  }
  if (p.rows_given != 0) return check.tensor("kv_row", p.kv_row, AS_BF16, {tokens, AS_HEAD_DIM});
  if (!check.tensor("q_raw", p.q_raw, AS_BF16, {tokens, kAny, AS_HEAD_DIM}) ||
      !check.tensor("kv", p.kv, AS_BF16, {tokens, AS_HEAD_DIM}) ||
      !check.tensor("positions", p.positions, AS_I64, {tokens}) || !check.rope(p.rope) ||
      !check.tensor("q", p.q, AS_BF16, {tokens, p.q_raw.shape[1], AS_HEAD_DIM}) ||
      !check.optional("kv_row", p.kv_row, AS_BF16, {tokens, AS_HEAD_DIM})) {
    return false;
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (!check.rope_position(p.rope, t, *at<std::int64_t>(p.positions, t))) return false;
  }
  return true;
}

void normalise_query(const Bits* raw, const float* rope, double eps, Bits* q) {
  const simd::Kernels& simd = simd::kernels();
  const float factor = inverse_rms(simd.sum_squares_bf16(raw, AS_HEAD_DIM), AS_HEAD_DIM, eps);
  simd.scale_bf16(raw, factor, nullptr, AS_NOPE_DIM, q);
  float turned[AS_ROPE_DIM];
  simd.from_bf16(raw + AS_NOPE_DIM, AS_ROPE_DIM, turned);
  simd.scale(turned, AS_ROPE_DIM, factor);
  rotate(turned, rope);
  simd.to_bf16(turned, 1.0f, AS_ROPE_DIM, q + AS_NOPE_DIM);
}

// The norm in bf16 steps. Sums and roots in double: one that fp32 puts on the wrong side of a
// rounding boundary would move every element of the head.
void normalise_query_rounded(const Bits* raw, const float* rope, double eps, bool factor_only,
                             Bits* q) {
  const simd::Kernels& simd = simd::kernels();
  float x[AS_HEAD_DIM];
  simd.from_bf16(raw, AS_HEAD_DIM, x);
  double sum = 0.0;
  for (const float v : x) {
    const float square = v * v;
    sum += static_cast<double>(factor_only ? square : round_bf16(square));
  }
  double mean = sum / double{AS_HEAD_DIM};
  if (!factor_only) mean = static_cast<double>(round_bf16(mean));
  mean += eps;
  if (!factor_only) mean = static_cast<double>(round_bf16(mean));
  const float factor = round_bf16(1.0 / std::sqrt(mean));
  for (float& v : x) v = round_bf16(v * factor);
  rotate(x + AS_NOPE_DIM, rope);
  simd.to_bf16(x, 1.0f, AS_HEAD_DIM, q);
}

// The row of token t before quantisation, as bf16-valued fp32.
void make_row(const Params& p, std::int64_t t, float* row) {
  const simd::Kernels& simd = simd::kernels();
  if (p.rows_given != 0) {
    simd.from_bf16(at<Bits>(p.kv_row, t), AS_HEAD_DIM, row);
    return;
  }
  simd.from_bf16(at<Bits>(p.kv, t), AS_HEAD_DIM, row);
  rotate(row + AS_NOPE_DIM, rope_row(p.rope, *at<std::int64_t>(p.positions, t)));
  for (int i = AS_NOPE_DIM; i < AS_HEAD_DIM; ++i) row[i] = round_bf16(row[i]);
  if (present(p.kv_row)) simd.to_bf16(row, 1.0f, AS_HEAD_DIM, at<Bits>(p.kv_row, t));
}

}  // namespace

void q_rope_kv_insert(const Params& p, const as_call* call, Check& check) {
  if (!check_params(p, check)) return;
  const std::int64_t tokens = p.slots.shape[0];
  if (p.rows_given == 0) {
    const std::int64_t heads = p.q_raw.shape[1];
    parallel_for(call, tokens * heads, 32, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t item = begin; item < end; ++item) {
        const std::int64_t t = item / heads;
        const std::int64_t h = item % heads;
        const Bits* raw = at<Bits>(p.q_raw, t, h);
        const float* rope = rope_row(p.rope, *at<std::int64_t>(p.positions, t));
        if (p.q_norm == AS_Q_NORM_FP32) {
          normalise_query(raw, rope, p.eps, at<Bits>(p.q, t, h));
        } else {
          normalise_query_rounded(raw, rope, p.eps, p.q_norm == AS_Q_NORM_BF16_FACTOR,
                                  at<Bits>(p.q, t, h));
        }
      }
    });
  }
  parallel_for(call, tokens, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      float row[AS_HEAD_DIM];
      make_row(p, t, row);
      const std::int64_t slot = *at<std::int64_t>(p.slots, t);
      if (slot >= 0) insert_row(p.cache, slot, row, {p.scale_floor, AS_FP4_EVEN});
    }
  });
}

}  // namespace attnscope::cpu
