// indexer_q: RoPE, optional Hadamard transform and quantisation of index queries; head weights.
#include <cmath>

#include "kernels/cpu/hadamard.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/quantise.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/simd/simd.h"

namespace attnscope::cpu {
namespace {

using Bits = std::uint16_t;
using Params = as_indexer_q_params;

bool check_params(const Params& p, Check& check) {
  const bool fp4 = p.format == AS_RECORD_INDEX_MXFP4;
  if (!fp4 && p.format != AS_RECORD_INDEX_FP8) {
    return check.fail("format is %d; allowed: INDEX_FP8 (2), INDEX_MXFP4 (3)", p.format);
  }
  if (!check.range("scale_floor", p.scale_floor, AS_SCALE_FLOOR_1E4, AS_SCALE_FLOOR_1E8) ||
      !check.range("fp4_rule", p.fp4_rule, AS_FP4_EVEN, AS_FP4_DOWN) ||
      !check.range("hadamard", p.hadamard, AS_HADAMARD_OFF, AS_HADAMARD_ROUNDED)) {
    return false;
  }
  if (!check.tensor("weights_raw", p.weights_raw, AS_BF16, {kAny, kAny})) return false;
  const std::int64_t tokens = p.weights_raw.shape[0];
  const std::int64_t heads = p.weights_raw.shape[1];
  if (!check.tensor("q", p.q, AS_U8, {tokens, heads, fp4 ? AS_INDEX_DIM / 2 : AS_INDEX_DIM}) ||
      !check.tensor("weights", p.weights, AS_F32, {tokens, heads}) ||
      (fp4 && !check.tensor("q_scale", p.q_scale, AS_U8, {tokens, heads, 4}))) {
    return false;
  }
  if (p.rows_given != 0) {
    return check.tensor("q_row", p.q_row, AS_BF16, {tokens, heads, AS_INDEX_DIM});
  }
  if (!check.tensor("q_raw", p.q_raw, AS_BF16, {tokens, heads, AS_INDEX_DIM}) ||
      !check.tensor("positions", p.positions, AS_I64, {tokens}) || !check.rope(p.rope) ||
      !check.optional("q_row", p.q_row, AS_BF16, {tokens, heads, AS_INDEX_DIM})) {
    return false;
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (!check.rope_position(p.rope, t, *at<std::int64_t>(p.positions, t))) return false;
  }
  return true;
}

// The query of token t, head j before quantisation, as bf16-valued fp32.
void make_row(const Params& p, std::int64_t t, std::int64_t j, float* row) {
  const simd::Kernels& simd = simd::kernels();
  if (p.rows_given != 0) {
    simd.from_bf16(at<Bits>(p.q_row, t, j), AS_INDEX_DIM, row);
    return;
  }
  simd.from_bf16(at<Bits>(p.q_raw, t, j), AS_INDEX_DIM, row);
  float* rotated = row + AS_INDEX_DIM - AS_ROPE_DIM;
  const float* turn = rope_row(p.rope, *at<std::int64_t>(p.positions, t));
  p.hadamard == AS_HADAMARD_ROUNDED ? rotate_to_bf16(rotated, turn) : rotate(rotated, turn);
  if (p.hadamard != 0) hadamard(row);
  Bits rounded[AS_INDEX_DIM];
  simd.to_bf16(row, 1.0f, AS_INDEX_DIM, rounded);
  simd.from_bf16(rounded, AS_INDEX_DIM, row);
  if (present(p.q_row)) std::memcpy(at<Bits>(p.q_row, t, j), rounded, sizeof(rounded));
}

}  // namespace

void indexer_q(const Params& p, const as_call* call, Check& check) {
  if (!check_params(p, check)) return;
  const std::int64_t heads = p.weights_raw.shape[1];
  const float dim_scale = static_cast<float>(1.0 / std::sqrt(double{AS_INDEX_DIM}));
  const float head_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(heads)));
  parallel_for(call, p.weights_raw.shape[0] * heads, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t t = item / heads;
      const std::int64_t j = item % heads;
      float row[AS_INDEX_DIM];
      make_row(p, t, j, row);
      float weight = bf16_to_float(*at<Bits>(p.weights_raw, t, j));
      auto* q = at<unsigned char>(p.q, t, j);
      if (p.format == AS_RECORD_INDEX_FP8) {
        weight *= exp2i(quantise_fp8(row, AS_INDEX_DIM, q, p.scale_floor));
      } else {
        quantise_row(AS_RECORD_INDEX_MXFP4, AS_INDEX_DIM, row, q,
                     at<unsigned char>(p.q_scale, t, j), {p.scale_floor, p.fp4_rule});
      }
      *at<float>(p.weights, t, j) = weight * dim_scale * head_scale;
    }
  });
}

}  // namespace attnscope::cpu
