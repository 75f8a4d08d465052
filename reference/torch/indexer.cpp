// The indexer of C4A layers: queries and head weights, scores, selection; and the greedy choice of
// a token.
#include <cmath>
#include <limits>
#include <string>

#include "kernels/layout/records.h"
#include "reference/ops.h"
#include "reference/torch/cache_rows.h"
#include "reference/torch/rotary.h"

namespace attnscope::reference {

namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();
constexpr std::int64_t kDots = 1 << 20;  // of one block at most, 8 MB

// Index queries in any of their forms. FP8 codes stand for themselves: their scale is in the head
// weights.
Tensor queries(const as_indexer_logits_params& p, std::int64_t tokens, std::int64_t heads) {
  constexpr std::int64_t kBlocks = AS_INDEX_DIM / AS_MXFP4_BLOCK;
  if (p.q.dtype != AS_U8) return floats(p.q, "q", {tokens, heads, AS_INDEX_DIM});
  if (!present(p.q_scale)) return e4m3_values(bytes(p.q, "q", {tokens, heads, AS_INDEX_DIM}));
  return decode_mxfp4(bytes(p.q, "q", {tokens, heads, AS_INDEX_DIM / 2}),
                      bytes(p.q_scale, "q_scale", {tokens, heads, kBlocks}));
}

}  // namespace

// q = bf16(hadamard(rope(q_raw))), quantised; weights = w_raw * scale / sqrt(128) / sqrt(heads)
void indexer_q(const as_indexer_q_params& p, const Precision& precision) {
  const Numbers numbers(precision);
  if (p.format != AS_RECORD_INDEX_FP8 && p.format != AS_RECORD_INDEX_MXFP4) {
    throw BadInput("format is " + std::to_string(p.format) +
                   "; allowed: AS_RECORD_INDEX_FP8 (2), AS_RECORD_INDEX_MXFP4 (3)");
  }
  check_rule("scale_floor", p.scale_floor, AS_SCALE_FLOOR_1E8);
  check_rule("fp4_rule", p.fp4_rule, AS_FP4_DOWN);
  check_rule("hadamard", p.hadamard, AS_HADAMARD_ROUNDED);
  const FewOnHost few(as_tensor_numel(&p.q_raw));
  Tensor weights = floats(p.weights_raw, "weights_raw", {kAny, kAny});
  const std::int64_t tokens = weights.size(0), heads = weights.size(1);
  check(p.weights, "weights", Kind::kFloat, {tokens, heads});
  const bool codes = p.q.dtype == AS_U8, fp8 = p.format == AS_RECORD_INDEX_FP8;
  if (!codes) {
    check(p.q, "q", Kind::kFloat, {tokens, heads, AS_INDEX_DIM});
  } else if (fp8) {
    check(p.q, "q", Kind::kBytes, {tokens, heads, AS_INDEX_DIM});
  } else {
    check(p.q, "q", Kind::kBytes, {tokens, heads, AS_INDEX_DIM / 2});
    check(p.q_scale, "q_scale", Kind::kBytes, {tokens, heads, AS_INDEX_DIM / AS_MXFP4_BLOCK});
  }

  Tensor q;
  if (p.rows_given != 0) {
    q = floats(p.q_row, "q_row", {tokens, heads, AS_INDEX_DIM});
  } else {
    q = floats(p.q_raw, "q_raw", {tokens, heads, AS_INDEX_DIM});
    const Tensor positions = integers(p.positions, "positions", {tokens});
    q = rotated(q, rotation_of(p.rope, positions, numbers.exact));
    if (p.hadamard == AS_HADAMARD_ROUNDED) q = numbers.bf16(q);
    if (p.hadamard != AS_HADAMARD_OFF) q = hadamard(q);
    q = numbers.bf16(q);
    if (present(p.q_row)) {
      check(p.q_row, "q_row", Kind::kFloat, {tokens, heads, AS_INDEX_DIM});
      put(p.q_row, q);
    }
  }
  if (!codes) {
    put(p.q, q);
  } else if (fp8) {
    const Fp8 row = encode_fp8(q, AS_INDEX_DIM, p.scale_floor);
    put(p.q, row.codes);
    weights = numbers.fp32(weights * scale_of(row.exponents).squeeze(-1));
  } else {
    const Mxfp4 row = encode_mxfp4(q, p.fp4_rule);
    put(p.q, row.packed);
    put(p.q_scale, row.scales);
  }
  const auto inverse_root = [&](std::int64_t n) {
    const double root = 1 / std::sqrt(static_cast<double>(n));
    return numbers.exact ? root : static_cast<float>(root);
  };
  weights = numbers.fp32(weights * inverse_root(AS_INDEX_DIM));
  put(p.weights, numbers.fp32(weights * inverse_root(heads)));
}

// logits[t,c] = sum_j relu(q_tj . k_c) * weights_tj
void indexer_logits(const as_indexer_logits_params& p, const Precision& precision) {
  const Numbers numbers(precision);
  const Tensor weights = floats(p.weights, "weights", {kAny, kAny});
  const std::int64_t tokens = weights.size(0), heads = weights.size(1);
  const Tensor q = queries(p, tokens, heads);
  const CacheRows cache(p.cache, "cache", kAnyIndexRecord, AS_INDEX_DIM);
  const Tensor table = integers(p.table, "table", {kAny, kAny});
  const Tensor requests = integers(p.token_to_req, "token_to_req", {tokens});
  const Tensor lens = integers(p.lens, "lens", {tokens}).clamp_min(0);
  check(p.logits, "logits", Kind::kFloat, {tokens, kAny});
  check_indices(lens, p.logits.shape[1] + 1, "number of visible entries");
  check_rule("score rule", p.weights.reserved, AS_SCORES_E4M3);
  const bool bf16 = p.weights.reserved == AS_SCORES_BF16 && !numbers.exact;
  const auto step = [&](const Tensor& x) { return bf16 ? round_to_bf16(x) : x; };

  const auto* request = requests.data_ptr<std::int64_t>();
  const auto* len = lens.data_ptr<std::int64_t>();
  for (std::int64_t first = 0, end = 0; first < tokens; first = end) {
    // Neighbouring tokens of one request, as many as their dot products may take.
    std::int64_t entries = 0;
    for (end = first; end < tokens && request[end] == request[first]; ++end) {
      const std::int64_t grown = std::max(entries, len[end]);
      if (end > first && (end - first + 1) * heads * grown > kDots) break;
      entries = grown;
    }
    if (entries == 0) continue;
    check_index(request[first], table.size(0), "request", first);
    const std::int64_t base = table[request[first]][0].item<std::int64_t>(), n = end - first;
    const Tensor k = cache.load(at::arange(base, base + entries, at::kLong));
    const Tensor dots = numbers.product(q.narrow(0, first, n).view({n * heads, -1}), k.t());
    const Tensor relu = step(dots).clamp_min_(0).view({n, heads, entries});  // NaN stays
    const Tensor w = step(weights.narrow(0, first, n));
    const Tensor scores =
        bf16 ? step(numbers.sum(step(relu * w.unsqueeze(2)), 1)).squeeze(1)
             : numbers.product(w.unsqueeze(1), relu).squeeze(1);  // [n,1,J] [n,J,entries]
    const Tensor rounded = numbers.fp32(scores).cpu();
    for (std::int64_t t = first; t < end; ++t) {
      put(narrow(select(p.logits, 0, t), 0, 0, len[t]), rounded[t - first].narrow(0, 0, len[t]));
    }
  }
}

// The K best of the entries that a token sees: numbers before NaN, higher scores before lower,
// lower entries before higher.
void indexer_topk(const as_indexer_topk_params& p, const Precision&) {
  const FewOnHost few(as_tensor_numel(&p.logits));
  const Tensor scores = floats(p.logits, "logits", {kAny, kAny});
  const std::int64_t tokens = scores.size(0), columns = scores.size(1);
  const Tensor lens = integers(p.lens, "lens", {tokens}).clamp_min(0);
  check_indices(lens, columns + 1, "number of visible entries");
  check(p.indices, "indices", Kind::kInteger, {tokens, kAny});
  const std::int64_t wanted = p.indices.shape[1], k = std::min(wanted, columns);
  if (k == 0) {
    in_place(p.indices).fill_(-1);
    return;
  }
  const Tensor visible = at::arange(columns).lt(lens.unsqueeze(1)).to(torch_device());  // [T,N]
  const Tensor number = scores.isnan().logical_not_().logical_and_(visible);
  const Tensor key = scores.masked_fill(number.logical_not(), kNever);
  const Tensor last = std::get<0>(key.topk(k, 1, true, false)).amin(1, true);  // in no order
  Tensor chosen = key.gt(last);
  // The first ones of these, as many as there is room for.
  const auto add_first = [&](const Tensor& those) {
    const Tensor room = k - chosen.sum(1, true);
    chosen = chosen.logical_or(those.logical_and(those.cumsum(1).le(room)));
  };
  add_first(number.logical_and(key.eq(last)));
  add_first(visible.logical_and(number.logical_not()));

  const Tensor entries = chosen.nonzero().select(1, 1);  // ascending, token after token
  const Tensor filled = at::arange(wanted, chosen.device()).lt(chosen.sum(1, true));  // [T,K]
  put(p.indices,
      at::full({tokens, wanted}, -1, entries.options()).masked_scatter_(filled, entries));
}

// The first of the largest numbers of a row; -1 where there is none.
void sample(const as_sample_params& p, const Precision&) {
  const FewOnHost few(as_tensor_numel(&p.logits));
  const Tensor logits = floats(p.logits, "logits", {kAny, kAny});
  check(p.tokens, "tokens", Kind::kInteger, {logits.size(0)});
  if (logits.numel() == 0) {
    in_place(p.tokens).fill_(-1);
    return;
  }
  const Tensor number = logits.isnan().logical_not_();
  const Tensor key = logits.masked_fill(number.logical_not(), kNever);
  const Tensor best = key.eq(key.amax(1, true)).logical_and_(number);
  put(p.tokens, best.to(at::kByte).argmax(1).masked_fill(number.any(1).logical_not(), -1));
}

}  // namespace attnscope::reference
