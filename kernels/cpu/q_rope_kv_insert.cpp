// q_rope_kv_insert: per-head q norm and RoPE; KV RoPE, FP8 quantisation, insertion into the SWA
// cache.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/heads.h"
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

constexpr std::int64_t kGroup = 8;  // heads that stay in the L1 between their sums and their turn

// The factor of a norm in bf16 steps. Sums and roots in double: one that fp32 puts on the wrong
// side of a rounding boundary would move every element of the head.
float rounded_factor(const Bits* raw, double eps, bool factor_only) {
  const double sum = simd::kernels().sum_bf16_squares(raw, AS_HEAD_DIM, !factor_only);
  double mean = sum / double{AS_HEAD_DIM};
  if (!factor_only) mean = static_cast<double>(round_bf16(mean));
  mean += eps;
  if (!factor_only) mean = static_cast<double>(round_bf16(mean));
  return round_bf16(1.0 / std::sqrt(mean));
}

// Norm and RoPE of heads from h on, at most kGroup.
void normalise_queries(const Params& p, std::int64_t t, std::int64_t h, std::int64_t rows,
                       bool stream) {
  const simd::Kernels& simd = simd::kernels();
  const Bits* raw = at<Bits>(p.q_raw, t, h);
  const std::int64_t stride = p.q_raw.stride[1];
  float factors[kGroup];
  simd::Turn turn;
  turn.x = raw;
  turn.x_stride = stride;
  turn.y = at<Bits>(p.q, t, h);
  turn.y_stride = p.q.stride[1];
  turn.rows = rows;
  turn.width = AS_HEAD_DIM;
  turn.table = rope_row(p.rope, *at<std::int64_t>(p.positions, t));
  turn.factors = factors;
  turn.rounded = p.q_norm != AS_Q_NORM_FP32;
  turn.stream = stream;
  if (turn.rounded) {
    const bool factor_only = p.q_norm == AS_Q_NORM_BF16_FACTOR;
    for (std::int64_t i = 0; i < rows; ++i) {
      factors[i] = rounded_factor(raw + i * stride, p.eps, factor_only);
    }
  } else {
    float sums[kGroup];
    simd.sum_squares_rows(raw, stride, rows, AS_HEAD_DIM, sums);
    for (std::int64_t i = 0; i < rows; ++i) factors[i] = inverse_rms(sums[i], AS_HEAD_DIM, p.eps);
  }
  // A head with a NaN or an infinity in it has the factor NaN or 0.
  turn.finite =
      std::all_of(factors, factors + rows, [](float f) { return f > 0.0f && std::isfinite(f); });
  simd.turn_heads(turn);
}

// The row of token t before quantisation; `own` has room for one.
const Bits* make_row(const Params& p, std::int64_t t, Bits* own) {
  if (p.rows_given != 0) return at<Bits>(p.kv_row, t);
  simd::Turn turn;
  turn.x = at<Bits>(p.kv, t);
  turn.y = present(p.kv_row) ? at<Bits>(p.kv_row, t) : own;
  turn.rows = 1;
  turn.width = AS_HEAD_DIM;
  turn.table = rope_row(p.rope, *at<std::int64_t>(p.positions, t));
  simd::kernels().turn_heads(turn);
  return turn.y;
}

}  // namespace

void q_rope_kv_insert(const Params& p, const as_call* call, Check& check) {
  if (!check_params(p, check)) return;
  const std::int64_t tokens = p.slots.shape[0];
  if (p.rows_given == 0) {
    const bool stream = is_streamed(p.q);
    for_heads(call, tokens, p.q_raw.shape[1], kGroup,
              [&](std::int64_t t, std::int64_t h, std::int64_t rows) {
                normalise_queries(p, t, h, rows, stream);
              });
  }
  parallel_for(call, tokens, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      Bits own[AS_HEAD_DIM];
      const Bits* row = make_row(p, t, own);
      const std::int64_t slot = *at<std::int64_t>(p.slots, t);
      if (slot >= 0) insert_row(p.cache, slot, row, {p.scale_floor, AS_FP4_EVEN});
    }
  });
}

}  // namespace attnscope::cpu
