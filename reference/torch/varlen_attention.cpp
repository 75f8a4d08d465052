// Attention of packed sequences without a cache: encoders, images, cross attention.
#include <limits>
#include <string>

#include "reference/ops.h"
#include "reference/torch/mask_value.h"
#include "reference/torch/position_bias.h"
#include "reference/torch/tensors.h"

namespace attnscope::reference {
namespace {

constexpr double kBelowAll = -std::numeric_limits<double>::infinity();
constexpr std::int64_t kQueriesAtOnce = 64;

// Where sequences begin in q or k: ascending from 0, the last one is an end.
Tensor starts_of(const as_tensor& given, const char* name, std::int64_t rows, Shape shape) {
  const Tensor starts = integers(given, name, shape);
  if (starts.size(0) < 1 || starts[0].item<std::int64_t>() != 0) {
    throw BadInput(std::string(name) + " does not begin with 0");
  }
  if (starts.diff().lt(0).any().item<bool>() || starts[-1].item<std::int64_t>() > rows) {
    throw BadInput(std::string(name) + " must ascend, to " + std::to_string(rows) + " at most");
  }
  return starts;
}

// One sequence: q [Q,H,D], k [S,H,D], v [S,H,V], a KV head for every query head.
struct Sequence {
  const as_varlen_attention_params& p;
  const Numbers& numbers;
  Tensor q, k, v, slopes, o, lse;
  std::int64_t number = 0;  // in the batch

  void attend() const {
    for (std::int64_t i = 0; i < q.size(0); i += kQueriesAtOnce) {
      some(i, std::min(kQueriesAtOnce, q.size(0) - i));
    }
  }

  MaskPlaces places(const Tensor& place, const Tensor& key) const {
    MaskPlaces at_place;
    at_place.query = place.to(at::kDouble).unsqueeze(0);
    at_place.key = key.to(at::kDouble).unsqueeze(0);
    at_place.head = at::arange(q.size(1), at::kDouble).view({-1, 1, 1});
    at_place.request = at::full({1, 1, 1}, static_cast<double>(number), at::kDouble);
    return at_place;
  }

  // Queries first .. first + n - 1. Keys that none of them sees are left out; values that are not
  // finite reach only who sees them, since 0 * NaN is NaN.
  void some(std::int64_t first, std::int64_t n) const {
    const std::int64_t keys = k.size(0);
    const Tensor place = at::arange(first, first + n).unsqueeze(1) + (keys - q.size(0));
    const Tensor key = at::arange(keys).unsqueeze(0);
    Tensor seen = at::ones({n, keys}, at::kBool);
    if (p.causal != 0) seen = seen.logical_and(key.le(place));
    if (p.window_left >= 0) seen = seen.logical_and(key.ge(place - p.window_left));
    if (p.window_right >= 0) seen = seen.logical_and(key.le(place + p.window_right));
    // [H,n,S] where a mask may differ from head to head, else [1,n,S].
    Tensor shown = seen.unsqueeze(0);
    if (present(p.mask_code)) {
      const Tensor value = evaluated(p.mask_code, "mask_code", places(place, key), {});
      shown = shown.logical_and(value.gt(0).logical_or(value.lt(0)));
    }
    const Tensor used = shown.any(0).any(0).nonzero().squeeze(1);
    if (used.numel() == 0) return;
    const std::int64_t begin = used[0].item<std::int64_t>();
    const std::int64_t count = used[-1].item<std::int64_t>() + 1 - begin;
    Tensor values = v.narrow(0, begin, count);
    if (present(p.mask_code)) {  // what lies between rows that are seen
      const Tensor unseen = shown.narrow(2, begin, count).any(0).any(0).logical_not();
      values = values.masked_fill(unseen.to(q.device()).view({-1, 1, 1}), 0);
    }
    if (n > 1 && !values.isfinite().all().item<bool>()) {
      for (std::int64_t i = 0; i < n; ++i) some(first + i, 1);
      return;
    }
    const Tensor hidden = shown.narrow(2, begin, count).logical_not().to(q.device());
    Tensor l = numbers.product(q.narrow(0, first, n).transpose(0, 1),
                               k.narrow(0, begin, count).permute({1, 2, 0}));  // [H,n,S]
    l = l * p.scale;
    if (p.soft_cap > 0) l = (l / p.soft_cap).tanh() * p.soft_cap;
    if (slopes.defined()) {
      const Tensor apart = (place - key.narrow(1, begin, count)).abs().to(q.device());
      l = l - slopes.view({-1, 1, 1}) * apart;
    }
    if (present(p.position_bias)) {
      const Tensor apart = key.narrow(1, begin, count) - place;
      l = l + position_bias(p.position_bias, q.size(1), p.bias_distance, p.causal != 0, apart)
                  .permute({2, 0, 1});
    }
    if (present(p.score_code)) {
      const auto at_place = places(place, key.narrow(1, begin, count));
      l = numbers.fp32(evaluated(p.score_code, "score_code", at_place, l));
    }
    l = l.masked_fill(hidden, kBelowAll);
    const Tensor none = hidden.all(2, true);
    const Tensor most = l.amax(2, true).masked_fill(none, 0);
    const Tensor e = (l - most).exp();
    const Tensor sum = numbers.sum(e, 2);
    const Tensor out = numbers.product(e / sum, values.transpose(0, 1)).masked_fill(none, 0);
    o.narrow(0, first, n).copy_(out.transpose(0, 1));
    const Tensor log = (most + sum.log()).masked_fill(none, kBelowAll);
    lse.narrow(0, first, n).copy_(log.squeeze(2).t());
  }
};

}  // namespace

void varlen_attention(const as_varlen_attention_params& p, const Precision& precision) {
  const Numbers numbers(precision);
  const Tensor q = floats(p.q, "q", {kAny, kAny, kAny});
  const std::int64_t tokens = q.size(0), heads = q.size(1), size = q.size(2);
  Tensor k = floats(p.k, "k", {kAny, kAny, size});
  const std::int64_t rows = k.size(0), kv_heads = k.size(1);
  Tensor v = floats(p.v, "v", {rows, kv_heads, kAny});
  if (kv_heads < 1 || heads % kv_heads != 0) {
    throw BadInput("q has " + std::to_string(heads) + " heads, k " + std::to_string(kv_heads) +
                   "; the first must be a multiple of the second");
  }
  check(p.o, "o", Kind::kFloat, {tokens, heads, v.size(2)});
  check(p.lse, "lse", Kind::kFloat, {tokens, heads});
  const bool apart = present(p.cu_seqlens_k);
  const Tensor starts =
      starts_of(p.cu_seqlens, "cu_seqlens", apart ? tokens : std::min(tokens, rows), {kAny});
  const Tensor key_starts =
      apart ? starts_of(p.cu_seqlens_k, "cu_seqlens_k", rows, {starts.size(0)}) : starts;
  k = k.repeat_interleave(heads / kv_heads, 1);
  v = v.repeat_interleave(heads / kv_heads, 1);
  const Tensor slopes =
      present(p.alibi_slopes) ? floats(p.alibi_slopes, "alibi_slopes", {heads}) : Tensor();
  const Tensor o = at::zeros({tokens, heads, v.size(2)}, q.options());
  const Tensor lse = at::full({tokens, heads}, kBelowAll, q.options());
  const bool padded = present(p.token_to_req);
  if (padded && apart) throw BadInput("token_to_req and cu_seqlens_k are both there");
  const Tensor owners = padded ? integers(p.token_to_req, "token_to_req", {tokens}) : Tensor();
  for (std::int64_t n = 0; n + 1 < starts.size(0); ++n) {
    const auto part = [&](const Tensor& all, const Tensor& from) {
      const auto begin = from[n].item<std::int64_t>();
      std::int64_t count = from[n + 1].item<std::int64_t>() - begin;
      // As many as stand before the first one that is padding.
      if (padded)
        count = owners.narrow(0, begin, count).ge(0).cumprod(0).sum().item<std::int64_t>();
      return all.narrow(0, begin, count);
    };
    Sequence{p,
             numbers,
             part(q, starts),
             part(k, key_starts),
             part(v, key_starts),
             slopes,
             part(o, starts),
             part(lse, starts),
             n}
        .attend();
  }
  put_bf16(p.o, o, numbers);
  put(p.lse, numbers.fp32(lse));
}

}  // namespace attnscope::reference
