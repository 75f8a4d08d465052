// Per-head query norm and RoPE, KV RoPE and insertion into the window cache; inverse RoPE.
#include "kernels/layout/records.h"
#include "reference/ops.h"
#include "reference/torch/cache_rows.h"
#include "reference/torch/rotary.h"

namespace attnscope::reference {

namespace {

constexpr std::int64_t kOutputBlock = 128;  // dims of attention's output that share an FP8 scale

// A query's heads, with the roundings of other implementations where q_norm asks for them.
Tensor normalised_heads(const Tensor& x, double eps, std::int32_t q_norm, const Numbers& numbers) {
  if (numbers.exact || q_norm == AS_Q_NORM_FP32) return normalised(x, eps, numbers);
  const auto step = [&](const Tensor& v) {
    return q_norm == AS_Q_NORM_BF16 ? round_to_bf16(v) : v;
  };
  const Tensor mean = step(numbers.sum(step(x * x), -1) / double{AS_HEAD_DIM});
  return round_to_bf16(x * round_to_bf16(step(mean + eps).rsqrt()));
}

// As codes with a scale for each block of 128, or, where there are no codes in ref.exact, the
// values themselves.
void put_codes(const as_inverse_rope_params& p, std::int64_t first, const Tensor& row) {
  const std::int64_t n = row.size(0);
  if (p.codes.dtype != AS_U8) return put(narrow(p.codes, 0, first, n), row);
  const Fp8 coded = encode_fp8(row, kOutputBlock, p.scale_floor);
  put(narrow(p.codes, 0, first, n), coded.codes);
  put(narrow(p.scales, 0, first, n), scale_of(coded.exponents));
}

}  // namespace

// q = bf16(rope(norm(q_raw))), kv_row = bf16(rope(kv)), cache row = quantised(kv_row)
void q_rope_kv_insert(const as_q_rope_kv_insert_params& p, const Precision& precision) {
  const Numbers numbers(precision);
  const FewOnHost few(as_tensor_numel(&p.q_raw));
  const Tensor slots = integers(p.slots, "slots", {kAny});
  const std::int64_t tokens = slots.size(0);
  const CacheRows cache(p.cache, "cache", AS_RECORD_LATENT, AS_HEAD_DIM);
  check_rule("q_norm", p.q_norm, AS_Q_NORM_BF16_FACTOR);
  check_rule("scale_floor", p.scale_floor, AS_SCALE_FLOOR_1E8);
  const Quantiser quantiser{p.scale_floor, AS_FP4_EVEN};
  if (p.rows_given != 0) {
    return cache.store(slots, floats(p.kv_row, "kv_row", {tokens, AS_HEAD_DIM}), numbers,
                       quantiser);
  }
  const Tensor positions = integers(p.positions, "positions", {tokens});
  check(p.q_raw, "q_raw", Kind::kFloat, {tokens, kAny, AS_HEAD_DIM});
  const std::int64_t heads = p.q_raw.shape[1];
  check(p.q, "q", Kind::kFloat, {tokens, heads, AS_HEAD_DIM});
  const Tensor kv = floats(p.kv, "kv", {tokens, AS_HEAD_DIM});
  if (present(p.kv_row)) check(p.kv_row, "kv_row", Kind::kFloat, {tokens, AS_HEAD_DIM});
  const Rotation rotation = rotation_of(p.rope, positions, numbers.exact);

  in_blocks(tokens, heads * AS_HEAD_DIM, [&](std::int64_t first, std::int64_t n) {
    const Tensor raw = floats(narrow(p.q_raw, 0, first, n), "q_raw", {n, heads, AS_HEAD_DIM});
    const Tensor x = normalised_heads(raw, p.eps, p.q_norm, numbers);
    put_bf16(narrow(p.q, 0, first, n), rotate(x, rotation.narrow(first, n)), numbers);
  });
  const Tensor row = numbers.bf16(rotated(kv, rotation));
  if (present(p.kv_row)) {
    const Tensor written = slots.ge(0).nonzero().squeeze(1);
    put_rows(p.kv_row, written, row.index_select(0, written.to(row.device())));
  }
  cache.store(slots, row, numbers, quantiser);
}

// row = bf16(rope(o) by the negative angle); out is it, codes are it quantised
void inverse_rope(const as_inverse_rope_params& p, const Precision& precision) {
  const Numbers numbers(precision);
  const bool given = p.rows_given != 0, quantises = present(p.codes);
  const as_tensor& from = given ? p.row : p.o;
  const FewOnHost few(as_tensor_numel(&from));
  check(from, given ? "row" : "o", Kind::kFloat, {kAny, kAny, AS_HEAD_DIM});
  const std::int64_t tokens = from.shape[0], heads = from.shape[1];
  const bool coded = quantises && p.codes.dtype == AS_U8;
  if (quantises)
    check(p.codes, "codes", coded ? Kind::kBytes : Kind::kFloat, {tokens, heads, AS_HEAD_DIM});
  if (coded) check(p.scales, "scales", Kind::kFloat, {tokens, heads, AS_HEAD_DIM / kOutputBlock});
  check_rule("scale_floor", p.scale_floor, AS_SCALE_FLOOR_1E10);
  if (!given && (present(p.out) || !quantises))
    check(p.out, "out", Kind::kFloat, {tokens, heads, AS_HEAD_DIM});
  if (!given && present(p.row)) check(p.row, "row", Kind::kFloat, {tokens, heads, AS_HEAD_DIM});
  Rotation rotation;
  if (!given) {
    const Tensor positions = integers(p.positions, "positions", {tokens});
    rotation = rotation_of(p.rope, positions, numbers.exact).inverse();
  }
  in_blocks(tokens, heads * AS_HEAD_DIM, [&](std::int64_t first, std::int64_t n) {
    Tensor row = floats(narrow(from, 0, first, n), given ? "row" : "o", {n, heads, AS_HEAD_DIM});
    if (!given) {
      row = numbers.bf16(rotated(row, rotation.narrow(first, n)));
      for (const as_tensor* out : {&p.out, &p.row}) {
        if (present(*out)) put(narrow(*out, 0, first, n), row);
      }
    }
    if (quantises) put_codes(p, first, row);
  });
}

}  // namespace attnscope::reference
