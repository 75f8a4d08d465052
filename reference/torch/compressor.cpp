// Compressors: saving a token's state row, and pooling a window of state rows into one entry.
#include <limits>
#include <string>
#include <vector>

#include "kernels/layout/records.h"
#include "reference/ops.h"
#include "reference/torch/cache_rows.h"
#include "reference/torch/rotary.h"

namespace attnscope::reference {

namespace {

// Windows that an entry pools over: its own, and for ratio 4 also the one before it.
std::int64_t overlap(std::int32_t ratio) {
  if (ratio == 4) return 2;
  if (ratio == 128) return 1;
  throw BadInput("ratio is " + std::to_string(ratio) + "; allowed: 4, 128");
}

// Per channel: softmax of the scores over the rows, weighted sum of the values. state
// [E,coff*ratio, 2*coff*d] are the rows up to the entries' positions [E]; a row is [C (coff*d) | Z
// (coff*d)]. With overlap, tokens of the earlier window give their first d channels, those of the
// entry's own window the second. Positions before the request's first token are left out.
Tensor pooled(const Tensor& state, const Tensor& before_first, std::int64_t coff,
              const Numbers& numbers) {
  const std::int64_t ratio = state.size(1) / coff, d = state.size(2) / (2 * coff);
  std::vector<Tensor> values, scores;
  for (std::int64_t w = 0; w < coff; ++w) {
    const Tensor window = state.narrow(1, w * ratio, ratio);
    values.push_back(window.narrow(2, w * d, d));
    scores.push_back(window.narrow(2, (coff + w) * d, d));
  }
  const Tensor out = before_first.unsqueeze(2);
  const Tensor c = at::cat(values, 1).masked_fill_(out, 0);
  const Tensor z = at::cat(scores, 1).masked_fill_(out, -std::numeric_limits<double>::infinity());
  const Tensor e = (z - z.amax(1, true)).exp_();
  return (numbers.sum(e * c, 1) / numbers.sum(e, 1)).squeeze(1);
}

}  // namespace

// [kv | score + ape of the position in its window]
void compressor_state(const as_compressor_state_params& p, const Precision& precision) {
  const Numbers numbers(precision);
  const FewOnHost few(as_tensor_numel(&p.proj));
  const std::int64_t coff = overlap(p.ratio);
  const Tensor proj = floats(p.proj, "proj", {kAny, kAny});
  const std::int64_t tokens = proj.size(0), half = proj.size(1) / 2;  // coff * d
  if (half % coff != 0 || proj.size(1) % 2 != 0) {
    throw BadInput("proj has " + std::to_string(proj.size(1)) +
                   " columns; expected a multiple of " + std::to_string(2 * coff));
  }
  const Tensor ape = floats(p.ape, "ape", {p.ratio, half});
  const Tensor positions = integers(p.positions, "positions", {tokens});
  const Tensor slots = integers(p.slots, "slots", {tokens});
  const CacheRows state(p.state, "state", AS_RECORD_STATE, proj.size(1));
  const Tensor place = positions.remainder(p.ratio).to(torch_device());
  in_blocks(tokens, proj.size(1), [&](std::int64_t first, std::int64_t n) {
    const Tensor rows = proj.narrow(0, first, n);
    const Tensor score =
        rows.narrow(1, half, half) + ape.index_select(0, place.narrow(0, first, n));
    const Tensor row = numbers.fp32(at::cat({rows.narrow(1, 0, half), score}, 1));
    state.store(slots.narrow(0, first, n), row, numbers);
  });
}

// row = bf16(hadamard(rope(rmsnorm(pooled) * weight))), quantised
void compress_insert(const as_compress_insert_params& p, const Precision& precision) {
  const Numbers numbers(precision);
  const Tensor slots = integers(p.slots, "slots", {kAny});
  const std::int64_t tokens = slots.size(0);
  const std::int64_t dim = p.cache.record == AS_RECORD_LATENT ? AS_HEAD_DIM : AS_INDEX_DIM;
  const CacheRows cache(p.cache, "cache", kAnyEntryRecord, dim);
  check_rule("scale_floor", p.scale_floor, AS_SCALE_FLOOR_1E8);
  check_rule("fp4_rule", p.fp4_rule, AS_FP4_DOWN);
  check_rule("hadamard", p.hadamard, AS_HADAMARD_ROUNDED);
  const Quantiser quantiser{p.scale_floor, p.fp4_rule};
  if (p.rows_given != 0) {
    return cache.store(slots, floats(p.row, "row", {tokens, dim}), numbers, quantiser);
  }
  const std::int64_t coff = overlap(p.ratio), span = coff * p.ratio;
  const FewOnHost few(tokens * span * dim);
  const CacheRows state(p.state, "state", AS_RECORD_STATE, 2 * coff * dim);
  const Tensor table = integers(p.table, "table", {kAny, kAny});
  const Tensor requests = integers(p.token_to_req, "token_to_req", {tokens});
  const Tensor positions = integers(p.positions, "positions", {tokens});
  const Tensor weight = floats(p.weight, "weight", {dim});
  if (present(p.row)) check(p.row, "row", Kind::kFloat, {tokens, dim});
  const bool round_between = p.round_pooled != 0 && !numbers.exact;
  const auto between = [&](const Tensor& x) { return round_between ? round_to_bf16(x) : x; };

  const Tensor emit = slots.ge(0).nonzero().squeeze(1);  // tokens that end a window
  for (std::int64_t i = 0; i < emit.numel(); ++i) {
    const std::int64_t t = emit[i].item<std::int64_t>();
    const std::int64_t position = positions[t].item<std::int64_t>();
    check_index(requests[t].item<std::int64_t>(), table.size(0), "request", t);
    if (position >= 0 && (position + 1) % p.ratio == 0) continue;
    throw BadInput("token " + std::to_string(t) + " at position " + std::to_string(position) +
                   " has a slot but ends no window of " + std::to_string(p.ratio) +
                   "; its slot must be -1");
  }
  in_blocks(emit.numel(), span * 2 * coff * dim, [&](std::int64_t first, std::int64_t n) {
    const Tensor t = emit.narrow(0, first, n), last = positions.index_select(0, t);
    const Tensor base = table.index_select(0, requests.index_select(0, t)).select(1, 0);
    const Tensor from = at::arange(span) + (last + 1 - span).unsqueeze(1);  // positions [E,span]
    const Tensor rows = state.load((from.clamp_min(0) + base.unsqueeze(1)).flatten());
    Tensor x = pooled(rows.view({n, span, -1}), from.lt(0).to(torch_device()), coff, numbers);
    x = between(normalised(between(x), p.eps, numbers) * weight);
    x = rotated(x, rotation_of(p.rope, last + 1 - p.ratio, numbers.exact));
    if (p.hadamard == AS_HADAMARD_ROUNDED) x = numbers.bf16(x);
    if (p.hadamard != AS_HADAMARD_OFF) x = hadamard(x);
    x = numbers.bf16(x);
    const Tensor at_t = slots.index_select(0, t);
    cache.store(at_t, x, numbers, quantiser);
    if (present(p.row)) put_rows(p.row, t, x);
  });
}

}  // namespace attnscope::reference
