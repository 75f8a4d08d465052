// The indexer that scores tokens: its queries with their weights, and its keys.
#include <cmath>

#include "kernels/layout/records.h"
#include "reference/ops.h"
#include "reference/torch/cache_rows.h"
#include "reference/torch/rotary.h"

namespace attnscope::reference {

namespace {

// The first 64 dims turned by halves, then the transform, each rounded to bf16.
Tensor index_row(const Tensor& x, const Rotation& rotation, bool transform,
                 const Numbers& numbers) {
  constexpr std::int64_t kHalf = AS_ROPE_DIM / 2;
  Tensor row = x.clone();
  rotate(row.narrow(-1, 0, kHalf), row.narrow(-1, kHalf, kHalf), rotation);
  row = numbers.bf16(row);
  return transform ? numbers.bf16(hadamard(row)) : row;
}

}  // namespace

void index_query(const as_index_query_params& p, const Precision& precision) {
  const Numbers numbers(precision);
  check_rule("hadamard", p.hadamard, 1);
  check_rule("scale_rule", p.scale_rule, AS_SCALE_POWER_OF_TWO);
  const FewOnHost few(as_tensor_numel(&p.q));
  Tensor weights = floats(p.weights_raw, "weights_raw", {kAny, kAny});
  const std::int64_t tokens = weights.size(0), heads = weights.size(1);
  check(p.weights, "weights", Kind::kFloat, {tokens, heads});
  const bool codes = p.q.dtype == AS_U8;
  check(p.q, "q", codes ? Kind::kBytes : Kind::kFloat, {tokens, heads, AS_INDEX_DIM});
  Tensor row;
  if (p.rows_given != 0) {
    row = floats(p.q_row, "q_row", {tokens, heads, AS_INDEX_DIM});
  } else {
    const Tensor raw = floats(p.q_raw, "q_raw", {tokens, heads, AS_INDEX_DIM});
    const Tensor positions = integers(p.positions, "positions", {tokens});
    row = index_row(raw, rotation_of(p.rope, positions, numbers.exact), p.hadamard != 0, numbers);
    if (present(p.q_row)) {
      check(p.q_row, "q_row", Kind::kFloat, {tokens, heads, AS_INDEX_DIM});
      put(p.q_row, row);
    }
  }
  const auto inverse_root = [&](std::int64_t n) {
    const double root = 1 / std::sqrt(static_cast<double>(n));
    return numbers.exact ? root : static_cast<float>(root);
  };
  weights = numbers.fp32(weights * inverse_root(heads));
  if (codes) {
    const ScaledFp8 coded = encode_fp8_by(p.scale_rule, row, AS_INDEX_DIM);
    put(p.q, coded.codes);
    weights = numbers.fp32(weights * coded.scales.squeeze(-1));
  } else {
    put(p.q, row);
  }
  put(p.weights, numbers.fp32(weights * inverse_root(AS_INDEX_DIM)));
}

void index_key_insert(const as_index_key_insert_params& p, const Precision& precision) {
  const Numbers numbers(precision);
  check_rule("hadamard", p.hadamard, 1);
  check_rule("scale_rule", p.scale_rule, AS_SCALE_POWER_OF_TWO);
  const Tensor slots = integers(p.slots, "slots", {kAny});
  const std::int64_t tokens = slots.size(0);
  const FewOnHost few(tokens * AS_INDEX_DIM);
  const CacheRows cache(p.cache, "cache", AS_RECORD_INDEX_FP8, AS_INDEX_DIM);
  Quantiser quantiser;
  quantiser.scale_rule = p.scale_rule;
  if (p.rows_given != 0) {
    return cache.store(slots, floats(p.row, "row", {tokens, AS_INDEX_DIM}), numbers, quantiser);
  }
  const Tensor k = floats(p.k, "k", {tokens, AS_INDEX_DIM});
  const Tensor weight = floats(p.weight, "weight", {AS_INDEX_DIM});
  const Tensor bias = floats(p.bias, "bias", {AS_INDEX_DIM});
  const Tensor positions = integers(p.positions, "positions", {tokens});
  const Tensor off = k - k.mean(1, true);
  const Tensor normed = off * ((off * off).mean(1, true) + p.eps).rsqrt() * weight + bias;
  const Tensor row = index_row(numbers.bf16(normed), rotation_of(p.rope, positions, numbers.exact),
                               p.hadamard != 0, numbers);
  if (present(p.row)) {
    check(p.row, "row", Kind::kFloat, {tokens, AS_INDEX_DIM});
    put(p.row, row);
  }
  cache.store(slots, row, numbers, quantiser);
}

}  // namespace attnscope::reference
