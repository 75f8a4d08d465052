// Norms, projections and the residual.
#include <string>

#include "reference/ops.h"
#include "reference/torch/cache_rows.h"
#include "reference/torch/rotary.h"
#include "reference/torch/weights.h"

namespace attnscope::reference {

namespace {

constexpr std::int64_t kBlock = 128;  // inputs, and outputs of a weight, that share a scale in FP8
// Numbers of a weight that are converted at a time: more than a cache holds where x has many rows,
// since all of x is read and packed for each block.
constexpr std::int64_t kFewRows = 8;
constexpr std::int64_t kConverted = 1 << 15, kConvertedOfMany = 1 << 21;
constexpr std::int64_t kConvertedOnGpu = 1 << 26;  // half a gigabyte

// A weight's codes and scales fit each other.
void check_codes(const as_linear_params& p) {
  for (int side = 0; side < 2 && p.weight.rank == 2; ++side) {
    if (p.weight.shape[side] % kBlock == 0) continue;
    throw BadInput("weight has codes of shape [" + std::to_string(p.weight.shape[0]) + "," +
                   std::to_string(p.weight.shape[1]) + "]; both sides must be multiples of 128");
  }
  if (!present(p.weight_scale)) throw BadInput("weight has codes, but weight_scale is absent");
  check(p.weight_scale, "weight_scale", Kind::kFloat,
        {p.weight.shape[0] / kBlock, p.weight.shape[1] / kBlock});
}

// Rows of a weight, of codes too: then those of blocks of 128.
Tensor weight_rows(const as_linear_params& p, std::int64_t first, std::int64_t n,
                   const Precision& precision) {
  const Tensor rows = weight_in_place(p.weight, precision.weights).narrow(0, first, n);
  if (p.weight.dtype != AS_U8) return doubles(rows);
  const Tensor scales = weight_in_place(p.weight_scale, precision.weights)
                            .narrow(0, first / kBlock, n / kBlock)
                            .to(at::kDouble);
  return decode_fp8(rows, scales.repeat_interleave(kBlock, 0));
}

// y = x W^T. Codes have been multiplied with inputs in codes too.
void project(const as_linear_params& p, const Numbers& numbers, bool bf16) {
  Tensor x = floats(p.x, "x", {kAny, kAny});
  const std::int64_t tokens = x.size(0), in = x.size(1);
  check(p.y, "y", Kind::kFloat, {tokens, kAny});
  const std::int64_t outs = p.y.shape[1];
  const bool codes = p.weight.dtype == AS_U8;
  check(p.weight, "weight", codes ? Kind::kBytes : Kind::kFloat, {outs, in});
  if (codes) check_codes(p);
  if (tokens == 0) return;
  if (codes && !numbers.exact) {
    const Fp8 coded = encode_fp8(x, kBlock);
    x = decode_fp8(coded.codes, scale_of(coded.exponents));
  }
  const std::int64_t at_a_time = !torch_device().is_cpu() ? kConvertedOnGpu
                                 : tokens <= kFewRows     ? kConverted
                                                          : kConvertedOfMany;
  const std::int64_t few = std::max<std::int64_t>(at_a_time / std::max<std::int64_t>(in, 1), 1);
  const std::int64_t step = codes ? (few + kBlock - 1) / kBlock * kBlock : few;
  const bool in_its_place = numbers.exact && !numbers.fp32_sums && torch_device().is_cpu() &&
                            p.y.dtype == AS_F64;  // no rounding, no copy
  for (std::int64_t first = 0; first < outs; first += step) {
    const std::int64_t n = std::min(step, outs - first);
    const Tensor weight = weight_rows(p, first, n, numbers).t();
    const as_tensor part = narrow(p.y, 1, first, n);
    if (in_its_place) {
      Tensor out = in_place(part);
      at::mm_out(out, x, weight);
      continue;
    }
    const Tensor y = numbers.product(x, weight);
    bf16 ? put_bf16(part, y, numbers) : put(part, numbers.fp32(y));
  }
}

}  // namespace

void linear(const as_linear_params& p, const Precision& precision) {
  project(p, Numbers(precision), true);
}

void linear_fp32(const as_linear_params& p, const Precision& precision) {
  project(p, Numbers(precision), false);
}

namespace {

// Of a wo_a in FP8: each group by itself, inputs as codes with their scales or, where ref.exact
// has no codes, as values.
void grouped_codes(const as_grouped_linear_params& p, const Numbers& numbers) {
  const bool coded = p.x.dtype == AS_U8;
  check(p.x, "x", coded ? Kind::kBytes : Kind::kFloat, {kAny, kAny, kAny});
  const std::int64_t tokens = p.x.shape[0], groups = p.x.shape[1], in = p.x.shape[2];
  check(p.weight, "weight", Kind::kBytes, {groups, kAny, in});
  const std::int64_t outs = p.weight.shape[1], rows = (outs + kBlock - 1) / kBlock;
  if (in % kBlock != 0) throw BadInput("weight has codes, whose inputs come in blocks of 128");
  check(p.y, "y", Kind::kFloat, {tokens, groups, outs});
  check(p.weight_scale, "weight_scale", Kind::kFloat, {groups, rows, in / kBlock});
  if (coded) check(p.x_scale, "x_scale", Kind::kFloat, {tokens, groups, in / kBlock});
  for (std::int64_t g = 0; g < groups && tokens > 0; ++g) {
    const as_tensor of_x = select(p.x, 1, g);
    const Tensor x =
        coded ? decode_fp8(bytes(of_x, "x", {tokens, in}),
                           floats(select(p.x_scale, 1, g), "x_scale", {tokens, in / kBlock}))
              : floats(of_x, "x", {tokens, in});
    const Tensor scale = weight_in_place(select(p.weight_scale, 0, g), numbers.weights)
                             .to(at::kDouble)
                             .repeat_interleave(kBlock, 0)
                             .narrow(0, 0, outs);
    const Tensor weight =
        decode_fp8(weight_in_place(select(p.weight, 0, g), numbers.weights), scale);
    put_bf16(select(p.y, 1, g), numbers.product(x, weight.t()), numbers);
  }
}

}  // namespace

void grouped_linear(const as_grouped_linear_params& p, const Precision& precision) {
  if (p.weight.dtype == AS_U8) return grouped_codes(p, Numbers(precision));
  check(p.x, "x", Kind::kFloat, {kAny, kAny, kAny});
  const std::int64_t groups = p.x.shape[1];
  check(p.weight, "weight", Kind::kFloat, {groups, kAny, p.x.shape[2]});
  check(p.y, "y", Kind::kFloat, {p.x.shape[0], groups, p.weight.shape[1]});
  const Numbers numbers(precision);
  if (!torch_device().is_cpu()) {                                             // all groups at once
    const Tensor x = floats(p.x, "x", {kAny, groups, kAny}).transpose(0, 1);  // [G,T,K]
    const Tensor w = weight_in_place(p.weight, precision.weights).to(at::kDouble);  // [G,O,K]
    put_bf16(p.y, numbers.product(x, w.transpose(1, 2)).transpose(0, 1), numbers);
    return;
  }
  for (std::int64_t g = 0; g < groups; ++g) {
    as_linear_params one{};
    one.x = select(p.x, 1, g);
    one.weight = select(p.weight, 0, g);
    one.y = select(p.y, 1, g);
    project(one, numbers, true);
  }
}

void rms_norm(const as_rms_norm_params& p, const Precision& precision) {
  const FewOnHost few(as_tensor_numel(&p.x));
  const Tensor x = floats(p.x, "x", {kAny, kAny});
  check(p.y, "y", Kind::kFloat, {x.size(0), x.size(1)});
  const Tensor weight = floats(p.weight, "weight", {x.size(1)}) + p.weight_plus_one;
  const Numbers numbers(precision);
  put_bf16(p.y, normalised(x, p.eps, numbers) * weight, numbers);
}

void q_kv_norm(const as_q_kv_norm_params& p, const Precision& precision) {
  const Numbers numbers(precision);
  const FewOnHost few(as_tensor_numel(&p.qkv));
  check(p.qr, "qr", Kind::kFloat, {kAny, kAny});
  const std::int64_t tokens = p.qr.shape[0], q_lora = p.qr.shape[1];
  check(p.kv, "kv", Kind::kFloat, {tokens, kAny});
  const std::int64_t d = p.kv.shape[1];
  const Tensor qkv = floats(p.qkv, "qkv", {tokens, kAny});
  if (qkv.size(1) < q_lora + d) {
    throw BadInput("qkv has " + std::to_string(qkv.size(1)) + " columns; it needs " +
                   std::to_string(q_lora + d));
  }
  const Tensor q_weight = floats(p.q_weight, "q_weight", {q_lora});
  const Tensor kv_weight = floats(p.kv_weight, "kv_weight", {d});
  put_bf16(p.qr, normalised(qkv.narrow(1, 0, q_lora), p.eps, numbers) * q_weight, numbers);
  put_bf16(p.kv, normalised(qkv.narrow(1, q_lora, d), p.eps, numbers) * kv_weight, numbers);
}

void residual(const as_residual_params& p, const Precision& precision) {
  const FewOnHost few(as_tensor_numel(&p.h));
  const Tensor h = floats(p.h, "h", {kAny, kAny});
  const Tensor y = floats(p.y, "y", {h.size(0), h.size(1)});
  check(p.out, "out", Kind::kFloat, {h.size(0), h.size(1)});
  put_bf16(p.out, h + y, Numbers(precision));
}

}  // namespace attnscope::reference
