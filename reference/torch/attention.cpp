// o = sum_i e^l_i v_i / (sum_i e^l_i + e^sink), l_i = scale * q . k_i, over the rows i that a token
// lists; lse = ln sum_i e^l_i.
#include "reference/torch/attention.h"

#include <cmath>
#include <limits>

#include "kernels/layout/records.h"
#include "reference/ops.h"
#include "reference/torch/cache_rows.h"

namespace attnscope::reference {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kLoadedOnce = 1 << 12;  // rows: 16 MiB of 512 numbers each
// How tokens share a product. On the host lists that have little in common are apart, since rows
// that a token does not list cost as much as others; a GPU has the speed for them, and would wait
// for the many small steps.
struct Sharing {
  std::int64_t tokens;  // in a product at most
  std::int64_t logits;  // likewise
  double rows;          // of a product, in those of its longest list
};
Sharing sharing() {
  if (torch_device().is_cpu()) return {64, std::int64_t{4} << 20, 1.5};  // 32 MB of logits
  return {256, std::int64_t{64} << 20, kInfinity};
}

// Which rows a block of tokens lists, [U], and how often each token lists each, [n,U].
std::pair<Tensor, Tensor> count(const Tensor& list, std::int64_t rows) {
  const Tensor place = list.clamp_min(-1).add(1);  // 0: none
  const Tensor listed = at::zeros({rows + 1}, at::kBool).index_fill_(0, place.flatten(), true);
  const Tensor used = listed.slice(0, 1).nonzero().squeeze(1);
  const Tensor column = at::zeros({rows + 1}, at::kLong);
  column.slice(0, 1).index_copy_(0, used, at::arange(1, used.numel() + 1));
  const Tensor columns = column.index_select(0, place.flatten()).view(list.sizes());
  const Tensor counts = at::zeros({list.size(0), used.numel() + 1}, at::kDouble);
  counts.scatter_add_(1, columns, at::ones(list.sizes(), at::kDouble));
  return {used, counts.slice(1, 1)};
}

// A finite sum has finite numbers; one that is not may have.
bool all_finite(const Tensor& x) {
  return std::isfinite(x.sum().item<double>()) || x.isfinite().all().item<bool>();
}

void attend_block(const Attention& a, const Numbers& numbers, std::int64_t first, std::int64_t n) {
  const Tensor list = a.list(first, n);
  const auto [used, host_counts] = count(list, a.rows);
  const double longest = list.ge(0).sum(1).max().item<double>();
  const auto halves = [&] {
    attend_block(a, numbers, first, n / 2);
    attend_block(a, numbers, first + n / 2, n - n / 2);
  };
  const auto [tokens, logits, rows] = sharing();
  const bool large = n * a.q.size(1) * used.numel() > logits;
  const bool apart = static_cast<double>(used.numel()) > rows * longest;
  if (n > 1 && (large || apart)) return halves();
  const auto [k, v] = a.load(used);  // [U,G,D], [U,G,V]
  // A row that is not finite must reach only the tokens that list it: 0 * NaN is NaN.
  if (n > 1 && !all_finite(v)) return halves();
  const std::int64_t H = a.q.size(1), G = k.size(1), U = k.size(0);
  const Tensor counts = host_counts.to(torch_device()).unsqueeze(1);  // [n,1,U]
  const auto by_kv_head = [&](const Tensor& x) {                      // [n,H,X] as [G,n*H/G,X]
    return x.view({n, G, H / G, x.size(2)}).transpose(0, 1).reshape({G, n * H / G, x.size(2)});
  };
  const auto by_token = [&](const Tensor& x) {  // and back
    return x.view({G, n, H / G, x.size(2)}).transpose(0, 1).reshape({n, H, x.size(2)});
  };

  Tensor l = by_token(numbers.product(by_kv_head(a.q.narrow(0, first, n)), k.permute({1, 2, 0})));
  l.mul_(a.scale);
  if (a.soft_cap > 0) l.div_(a.soft_cap).tanh_().mul_(a.soft_cap);
  if (a.bias) l.add_(a.bias(used, first, n));
  if (a.shown && U > 0) l = a.shown(l, used, first, n);
  if (n > 1) l.masked_fill_(counts.eq(0), -kInfinity);  // one token lists all
  Tensor most = U > 0 ? l.amax(2, true) : at::zeros({n, H, 1}, l.options());
  most.masked_fill_(most.eq(-kInfinity), 0);
  const Tensor e = l.sub_(most).exp_();
  if (U > 0 && host_counts.max().item<double>() > 1) e.mul_(counts);  // else 0 where it is 0
  const Tensor sum = numbers.sum(e, 2);
  const Tensor all = sum + (a.sinks.view({1, H, 1}) - most).exp();
  Tensor o = by_token(numbers.product(by_kv_head(e.div_(all)), v.transpose(0, 1)));

  Tensor lse = most + sum.log();
  if (a.shown || host_counts.sum(1).eq(0).any().item<bool>()) {  // a token sees nothing
    Tensor none = counts.sum(2, true).eq(0);
    if (a.shown) none = none.logical_or(sum.eq(0));
    o = o.masked_fill(none, 0);
    lse = lse.masked_fill(none, a.empty_lse);
  }
  put_bf16(narrow(a.o, 0, first, n), o, numbers);
  put(narrow(a.lse, 0, first, n), numbers.fp32(lse.squeeze(2)));
}

// The rows of all lists, which blocks of tokens share most of, loaded once where they are not too
// many, so that each is decoded once: [U,G,D] by rows [U].
std::function<Tensor(const Tensor&)> loaded_once(const Tensor& list, std::int64_t rows,
                                                 const std::function<Tensor(const Tensor&)>& load) {
  if (!torch_device().is_cpu() || list.size(0) <= sharing().tokens) return load;
  const Tensor place = list.clamp_min(-1).add_(1).flatten();  // 0: none
  const Tensor used =
      at::zeros({rows + 1}, at::kBool).index_fill_(0, place, true).slice(0, 1).nonzero().squeeze(1);
  if (used.numel() > kLoadedOnce) return load;
  const Tensor at = at::empty({rows}, at::kLong);
  at.index_copy_(0, used, at::arange(used.numel()));
  return [at, loaded = load(used)](const Tensor& which) {
    return loaded.index_select(0, at.index_select(0, which));
  };
}

// Which places of the token's lists lie in a tile of its splits: [T,W+K], window places first.
Tensor in_splits(const as_sparse_attention_params& p, std::int64_t tokens, std::int64_t window,
                 std::int64_t extra) {
  const Integers rows(p.plan_rows, "plan_rows", {tokens, 2});
  const Integers splits(p.plan_splits, "plan_splits", {kAny, AS_PLAN_COLUMNS});
  const Integers lens(p.topk_length, "topk_length", {tokens});
  const Tensor in = at::zeros({tokens, window + extra}, at::kBool);
  auto places = in.accessor<bool, 2>();
  for (std::int64_t t = 0; t < tokens; ++t) {
    // The window's list fills whole tiles, one at least.
    std::int64_t behind_window = AS_PLAN_TILE;
    while (behind_window < lens.get(t)) behind_window += AS_PLAN_TILE;
    for (std::int64_t n = rows.get(t, 0); n < rows.get(t, 0) + rows.get(t, 1); ++n) {
      check_index(n, splits.size(0), "split", t);
      const std::int64_t begin = splits.get(n, AS_PLAN_BEGIN) * AS_PLAN_TILE;
      const std::int64_t end = splits.get(n, AS_PLAN_END) * AS_PLAN_TILE;
      for (std::int64_t k = 0; k < window + extra; ++k) {
        const std::int64_t place = k < window ? k : behind_window + k - window;
        if (place >= begin && place < end) places[t][k] = true;
      }
    }
  }
  return in;
}

}  // namespace

Tensor valid_rows(std::int64_t rows, const as_tensor& indices, const as_tensor& lens,
                  std::int64_t tokens, const char* indices_name, const char* lens_name) {
  const Tensor list = integers(indices, indices_name, {tokens, kAny});
  const Tensor n = integers(lens, lens_name, {tokens}).clamp_min(0);
  check_indices(n, list.size(1) + 1, lens_name);
  const Tensor behind = at::arange(list.size(1)).ge(n.unsqueeze(1));
  const Tensor valid = list.masked_fill(behind.logical_or(list.lt(0)), -1);
  check_indices(valid.clamp_min(0), std::max<std::int64_t>(rows, 1), "slot");
  return valid;
}

void attend(const Attention& a, const Numbers& numbers) {
  const std::int64_t tokens = a.q.size(0);
  const std::int64_t most = sharing().tokens;
  for (std::int64_t first = 0; first < tokens; first += most) {
    attend_block(a, numbers, first, std::min(most, tokens - first));
  }
}

void sparse_attention(const as_sparse_attention_params& p, const Precision& precision) {
  const Tensor q = floats(p.q, "q", {kAny, kAny, AS_HEAD_DIM});
  const std::int64_t tokens = q.size(0), heads = q.size(1);
  const Tensor sinks = floats(p.sinks, "sinks", {heads});
  check(p.o, "o", Kind::kFloat, {tokens, heads, AS_HEAD_DIM});
  check(p.lse, "lse", Kind::kFloat, {tokens, heads});
  const CacheRows window(p.cache, "cache", AS_RECORD_LATENT, AS_HEAD_DIM);
  std::int64_t rows = window.size();
  Tensor list =
      valid_rows(window.size(), p.indices, p.topk_length, tokens, "indices", "topk_length");
  std::optional<CacheRows> extra;  // none in SWA-only layers
  if (p.extra_cache.record != AS_RECORD_NONE && present(p.extra_indices)) {
    extra.emplace(p.extra_cache, "extra_cache", AS_RECORD_LATENT, AS_HEAD_DIM);
    const Tensor more = valid_rows(extra->size(), p.extra_indices, p.extra_topk_length, tokens,
                                   "extra_indices", "extra_topk_length");
    list = at::cat({list, at::where(more.ge(0), more + rows, more)}, 1);  // behind the window's
    rows += extra->size();
  }
  if (present(p.plan_rows)) {
    const std::int64_t places = p.indices.shape[1];
    list = list.masked_fill(in_splits(p, tokens, places, list.size(1) - places).logical_not(), -1);
  }
  const auto load = [&](const Tensor& used) {
    const Tensor of_window = used.lt(window.size());
    Tensor kv = window.load(used.masked_select(of_window));
    if (extra) {
      const Tensor others = used.masked_select(of_window.logical_not()) - window.size();
      kv = at::cat({kv, extra->load(others)}, 0);
    }
    return kv.unsqueeze(1);
  };
  const auto loaded = loaded_once(list, rows, load);
  const auto both = [&](const Tensor& used) {  // one row is key and value of all heads
    const Tensor kv = loaded(used);
    return std::make_pair(kv, kv);
  };
  const auto lists = [&](std::int64_t first, std::int64_t n) { return list.narrow(0, first, n); };
  attend({q, p.scale, 0, sinks, lists, rows, both, kInfinity, p.o, p.lse}, Numbers(precision));
}

}  // namespace attnscope::reference
