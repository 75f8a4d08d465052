// What serving code needs around the ops of a step.
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/layout/records.h"
#include "kernels/params/tensor_view.h"
#include "reference/ops.h"
#include "reference/torch/cache_rows.h"
#include "reference/torch/rotary.h"

namespace attnscope::reference {

namespace {

constexpr std::int64_t kScaleBlock = 128;  // values that share an FP8 scale

}  // namespace

// The sum of both states' weights, each as a power of `base` relative to the larger one.
void merge_states(const as_merge_states_params& p, const Precision&) {
  const Tensor a = floats(p.a, "a", {kAny, kAny, kAny});
  const std::int64_t tokens = a.size(0), heads = a.size(1), dim = a.size(2);
  const Tensor b = floats(p.b, "b", {tokens, heads, dim});
  const Tensor lse_a = floats(p.lse_a, "lse_a", {tokens, heads});
  const Tensor lse_b = floats(p.lse_b, "lse_b", {tokens, heads});
  check(p.out, "out", Kind::kFloat, {tokens, heads, dim});
  check(p.lse, "lse", Kind::kFloat, {tokens, heads});
  const double unit = p.base_2 != 0 ? std::log(2.0) : 1.0;  // of the logarithms, in nats
  const double infinity = std::numeric_limits<double>::infinity();

  const Tensor lse = at::stack({lse_a, lse_b}), values = at::stack({a, b});  // [2,T,H], [2,T,H,D]
  const Tensor empty = lse.isinf();
  const Tensor most = lse.masked_fill(empty, -infinity).amax(0);
  const Tensor weight = ((lse - most) * unit).exp().masked_fill(empty, 0);
  const Tensor total = weight.sum(0), none = empty.all(0);
  const Tensor sum = (values.masked_fill(empty.unsqueeze(3), 0) * weight.unsqueeze(3)).sum(0);
  put(p.out, (sum / total.unsqueeze(2)).masked_fill(none.unsqueeze(2), 0));
  put(p.lse, (most + total.log() / unit).masked_fill(none, infinity));
}

void gather_rows(const as_gather_rows_params& p, const Precision&) {
  const bool state = p.cache.record == AS_RECORD_STATE;
  const CacheRows cache(p.cache, "cache", state ? AS_RECORD_STATE : kAnyEntryRecord, p.cache.width);
  const Tensor slots = integers(p.slots, "slots", {kAny}), none = slots.lt(0);
  check(p.out, "out", Kind::kFloat, {slots.size(0), p.cache.width});
  const Tensor found = cache.load(slots.masked_select(none.logical_not()));
  const Tensor out = at::zeros({slots.size(0), p.cache.width}, found.options());
  out.index_copy_(0, none.logical_not().nonzero().squeeze(1).to(torch_device()), found);
  put(p.out, out);
}

// NaN has no sign, so that its bytes are the same however it came about.
void convert_rows(const as_convert_rows_params& p, const Precision& precision) {
  const Numbers numbers(precision);
  const std::int64_t heads = std::max<std::int64_t>(1, p.from.data.reserved);
  const CacheRows from(p.from, "from", kKvRecord, p.from.width, heads, &p.from_scale);
  const CacheRows to(p.to, "to", kKvRecord, p.from.width, heads, &p.to_scale);
  const Tensor slots = integers(p.slots, "slots", {kAny});
  const Tensor there = slots.masked_select(slots.ge(0));
  const Tensor read = numbers.bf16(numbers.fp32(from.load(there)));
  to.store(there, read.masked_fill(read.isnan(), std::numeric_limits<double>::quiet_NaN()),
           numbers);
}

// As sparse_attention over a cache of plain values.
void workspace_attention(const as_workspace_attention_params& p, const Precision& precision) {
  const Tensor rows = floats(p.rows, "rows", {kAny, AS_HEAD_DIM}).cpu().contiguous();
  as_sparse_attention_params plain{};
  plain.head = {sizeof(plain), AS_PARAMS_VERSION};
  plain.q = p.q;
  plain.cache.data = make_tensor(rows.data_ptr<double>(), {rows.size(0), AS_HEAD_DIM});
  plain.cache.record = AS_RECORD_LATENT;
  plain.cache.addressing = AS_LOGICAL;
  plain.cache.width = AS_HEAD_DIM;
  plain.indices = p.indices;
  plain.topk_length = p.topk_length;
  plain.sinks = p.sinks;
  plain.o = p.o;
  plain.lse = p.lse;
  plain.scale = p.scale;
  sparse_attention(plain, precision);
}

void inverse_rope_quantise(const as_inverse_rope_quantise_params& p, const Precision& precision) {
  const Numbers numbers(precision);
  const Tensor o = floats(p.o, "o", {kAny, kAny, kAny});
  const std::int64_t tokens = o.size(0), heads = o.size(1), dim = o.size(2);
  check(p.codes, "codes", Kind::kFloat, {tokens, heads, dim});
  check(p.scales, "scales", Kind::kFloat, {tokens, heads, dim / kScaleBlock});
  const Tensor positions = integers(p.positions, "positions", {tokens});
  const Rotation back = rotation_of(p.rope, positions, numbers.exact).inverse();
  const Fp8 coded = encode_fp8(round_to_bf16(rotated(o, back)), kScaleBlock);
  const Tensor scales = scale_of(coded.exponents);
  put(p.codes, decode_fp8(coded.codes, scales));
  put(p.scales, scales);
}

void fp8_linear(const as_fp8_linear_params& p, const Precision& precision) {
  const Tensor x = bytes(p.x, "x", {kAny, kAny});
  const std::int64_t rows = x.size(0), in = x.size(1), blocks = in / kScaleBlock;
  const Tensor weight = bytes(p.weight, "weight", {kAny, in});
  const std::int64_t outs = weight.size(0);
  check(p.y, "y", Kind::kFloat, {rows, outs});
  const Tensor x_scale = floats(p.x_scale, "x_scale", {rows, blocks});
  const Tensor weight_scale =
      floats(p.weight_scale, "weight_scale", {(outs + kScaleBlock - 1) / kScaleBlock, blocks});
  const Tensor of_rows = weight_scale.repeat_interleave(kScaleBlock, 0).narrow(0, 0, outs);
  put(p.y, Numbers(precision).product(decode_fp8(x, x_scale), decode_fp8(weight, of_rows).t()));
}

}  // namespace attnscope::reference
