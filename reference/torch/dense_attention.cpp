// Dense models: norm and rotary embedding of queries and keys, keys and values into their caches,
// attention over the rows of a request.
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "kernels/params/row_format.h"
#include "reference/ops.h"
#include "reference/torch/attention.h"
#include "reference/torch/cache_rows.h"
#include "reference/torch/mask_value.h"
#include "reference/torch/position_bias.h"
#include "reference/torch/rotary.h"

namespace attnscope::reference {

namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// Of the first dims of a head, none where nothing is rotated.
std::optional<Rotation> head_rotation(const as_rope& rope, std::int64_t size,
                                      const as_tensor& positions, std::int64_t tokens, bool exact) {
  if (!present(rope.table) && rope.factor > 1) {
    throw BadInput("rope.factor is above 1 (YaRN); give rope.table");
  }
  if (!present(rope.table) && !(rope.base > 0)) return {};
  const Tensor at_positions = integers(positions, "positions", {tokens});
  if (!present(rope.table)) {
    std::vector<double> f;
    for (std::int64_t i = 0; i < size / 2; ++i) {
      f.push_back(std::pow(rope.base, -2.0 * static_cast<double>(i) / static_cast<double>(size)));
    }
    return rotation_of(f, at_positions, exact);
  }
  if (rope.table.rank == 2 && (rope.table.shape[1] % 2 != 0 || rope.table.shape[1] > size)) {
    throw BadInput("rope.table has rows of " + std::to_string(rope.table.shape[1]) +
                   " values; allowed: even numbers up to " + std::to_string(size));
  }
  return rotation_of(rope.table, at_positions);
}

// Rows of 16 bits, which the first tokens of a request have beside others.
CacheRows wide_rows(const as_cache& cache, const char* name, std::int64_t heads,
                    std::int64_t size) {
  const std::int32_t record = cache.record & ~AS_RECORD_HND;
  if (record != AS_RECORD_BF16 && record != AS_RECORD_F16) {
    throw BadInput(std::string(name) + " holds rows of record " + std::to_string(cache.record) +
                   "; the first tokens' rows are bf16 or f16");
  }
  return {cache, name, cache.record, heads * size, heads};
}

}  // namespace

// q_out = bf16(rope(norm(q))), k_row = bf16(rope(norm(k))); k_row and v into their caches
void rope_kv_insert(const as_rope_kv_insert_params& p, const Precision& precision) {
  const Numbers numbers(precision);
  const bool given = p.rows_given != 0;
  check_rule("style", p.style, AS_ROPE_GPTJ);
  check_rule("weight_plus_one", p.weight_plus_one, 1);
  const auto made = [&](Tensor x, const as_tensor& weight, const char* weight_name) {
    const std::int64_t tokens = x.size(0), size = x.size(2);
    if (present(weight)) {
      x = normalised(x, p.eps, numbers) * (floats(weight, weight_name, {size}) + p.weight_plus_one);
    }
    if (const auto r = head_rotation(p.rope, size, p.positions, tokens, numbers.exact)) {
      const std::int64_t n = r->cos.size(1);
      x = x.clone();
      if (p.style == AS_ROPE_NEOX) {
        rotate(x.narrow(2, 0, n), x.narrow(2, n, n), *r);
      } else {
        rotate(x.slice(2, 0, 2 * n, 2), x.slice(2, 1, 2 * n, 2), *r);
      }
    }
    return numbers.bf16(x);
  };
  if (!given && present(p.q)) {
    const Tensor q = floats(p.q, "q", {kAny, kAny, kAny});
    check(p.q_out, "q_out", Kind::kFloat, {q.size(0), q.size(1), q.size(2)});
    put(p.q_out, made(q, p.q_weight, "q_weight"));
    // A layer that reads the rows of another one.
    if (!present(p.k) && !present(p.v)) return;
  }
  const bool beside = !given && present(p.q);
  Tensor k = floats(given ? p.k_row : p.k, given ? "k_row" : "k",
                    {beside ? p.q.shape[0] : kAny, kAny, beside ? p.q.shape[2] : kAny});
  const std::int64_t tokens = k.size(0), kv_heads = k.size(1), size = k.size(2);
  const Tensor v = floats(p.v, "v", {tokens, kv_heads, kAny});
  const Tensor slots = integers(p.slots, "slots", {tokens});
  const CacheRows k_cache(p.k_cache, "k_cache", kKvRecord, kv_heads * size, kv_heads, &p.k_scale);
  const CacheRows v_cache(p.v_cache, "v_cache", kKvRecord, kv_heads * v.size(2), kv_heads,
                          &p.v_scale);

  if (!given) k = made(k, p.k_weight, "k_weight");
  if (!given && present(p.k_row)) {
    check(p.k_row, "k_row", Kind::kFloat, {tokens, kv_heads, size});
    put(p.k_row, k);
  }
  k_cache.store(slots, k.reshape({tokens, kv_heads * size}), numbers);
  v_cache.store(slots, v.reshape({tokens, kv_heads * v.size(2)}), numbers);
  if (!present(p.wide_slots)) return;
  const Tensor wide = integers(p.wide_slots, "wide_slots", {tokens});
  wide_rows(p.k_wide, "k_wide", kv_heads, size)
      .store(wide, k.reshape({tokens, kv_heads * size}), numbers);
  wide_rows(p.v_wide, "v_wide", kv_heads, v.size(2))
      .store(wide, v.reshape({tokens, kv_heads * v.size(2)}), numbers);
}

void paged_attention(const as_paged_attention_params& p, const Precision& precision) {
  const Tensor q = floats(p.q, "q", {kAny, kAny, kAny});
  const std::int64_t tokens = q.size(0), heads = q.size(1), size = q.size(2);
  check(p.o, "o", Kind::kFloat, {tokens, heads, kAny});
  check(p.lse, "lse", Kind::kFloat, {tokens, heads});
  const std::int64_t kv_heads = as_cache_heads(&p.k_cache), size_v = p.o.shape[2];
  const CacheRows k_cache(p.k_cache, "k_cache", kKvRecord, kv_heads * size, kv_heads, &p.k_scale);
  const CacheRows v_cache(p.v_cache, "v_cache", kKvRecord, kv_heads * size_v, kv_heads, &p.v_scale);
  const Tensor table = integers(p.table, "table", {kAny, kAny});
  // Rows of the first tokens are numbered behind those of k_cache.
  const std::int64_t behind = k_cache.size();
  const bool wide = p.wide_tokens > 0;
  std::optional<CacheRows> k_wide, v_wide;
  Tensor wide_table;
  if (wide) {
    if (p.chunk > 0) throw BadInput("a chunk is beside wide_tokens; give one of them");
    k_wide = wide_rows(p.k_wide, "k_wide", kv_heads, size);
    v_wide = wide_rows(p.v_wide, "v_wide", kv_heads, size_v);
    wide_table = integers(p.wide_table, "wide_table", {table.size(0), kAny}).select(1, 0) + behind;
  }
  const std::int64_t all_rows = behind + (wide ? k_wide->size() : 0);
  const Tensor requests = integers(p.token_to_req, "token_to_req", {tokens});
  const Tensor positions = integers(p.positions, "positions", {tokens});
  const Tensor seq_lens = integers(p.seq_lens, "seq_lens", {table.size(0)});
  if (heads % kv_heads != 0) {
    throw BadInput("q has " + std::to_string(heads) + " heads, k_cache " +
                   std::to_string(kv_heads) + "; the first must be a multiple of the second");
  }
  if (p.causal == 0 && p.window > 0) throw BadInput("a window needs causal to be 1");
  if (p.causal == 0 && p.chunk > 0) throw BadInput("a chunk needs causal to be 1");
  check_indices(requests.clamp_min(0), std::max<std::int64_t>(table.size(0), 1),
                "row of the table");
  const Tensor sinks = present(p.sinks) ? floats(p.sinks, "sinks", {heads})
                                        : at::full({heads}, kMinusInfinity, q.options());

  const Tensor later =
      present(p.first_rows) ? integers(p.first_rows, "first_rows", {table.size(0)}) : Tensor();
  // Positions first .. end - 1 of the token's request, in rows behind one another.
  const auto list = [&](std::int64_t begin, std::int64_t n) {
    const Tensor request = requests.narrow(0, begin, n), r = request.clamp_min(0);
    const Tensor t = positions.narrow(0, begin, n);
    if (table.size(0) == 0) return at::full({n, 1}, -1, at::kLong);
    Tensor end = seq_lens.index_select(0, r).masked_fill(request.lt(0), 0);
    if (p.causal != 0) end = at::minimum(end, t + 1);
    Tensor first = p.window > 0 ? t + 1 - p.window : at::zeros_like(t);
    if (p.chunk > 0) first = at::maximum(first, t - t.remainder(p.chunk));
    if (later.defined()) first = at::maximum(first, later.index_select(0, r));
    const Tensor row = at::arange(std::max<std::int64_t>(end.max().item<std::int64_t>(), 1));
    const Tensor seen = row.ge(first.unsqueeze(1)).logical_and_(row.lt(end.unsqueeze(1)));
    Tensor slots = table.index_select(0, r).select(1, 0).unsqueeze(1) + row;
    if (wide) {
      const Tensor of_first = wide_table.index_select(0, r).unsqueeze(1) + row;
      slots = at::where(row.lt(p.wide_tokens), of_first, slots);
    }
    check_indices(slots.masked_fill(seen.logical_not(), 0), all_rows, "k_cache", begin);
    return slots.masked_fill(seen.logical_not(), -1);
  };
  // -slope * |position - place of the row in the token's request|, [n,H,U]. Rows of other requests
  // get one too and are not listed.
  const Tensor slopes = present(p.alibi_slopes) ? floats(p.alibi_slopes, "alibi_slopes", {heads})
                                                : at::zeros({heads}, q.options());
  const auto distance = [&](const Tensor& rows, std::int64_t begin, std::int64_t n) {
    const Tensor r = requests.narrow(0, begin, n).clamp_min(0);
    Tensor start = table.index_select(0, r).select(1, 0).unsqueeze(1);
    if (wide) {
      start = at::where(rows.unsqueeze(0).lt(behind), start,
                        wide_table.index_select(0, r).unsqueeze(1));
    }
    const Tensor place = rows.unsqueeze(0) - start;  // [n,U]
    return place - positions.narrow(0, begin, n).unsqueeze(1);
  };
  const auto bias = [&](const Tensor& rows, std::int64_t begin, std::int64_t n) {
    const Tensor apart = distance(rows, begin, n);
    Tensor added = apart.abs().to(q.options()).unsqueeze(1).mul(slopes.view({1, heads, 1})).neg();
    if (present(p.position_bias)) {
      const Tensor learned =
          position_bias(p.position_bias, heads, p.bias_distance, p.causal != 0, apart);
      added = added + learned.transpose(1, 2);  // [n,U,H] to [n,H,U]
    }
    return added;
  };
  const auto shown = [&](const Tensor& scores, const Tensor& rows, std::int64_t begin,
                         std::int64_t n) {
    const auto by_token = [&](const Tensor& t) { return t.to(at::kDouble).view({n, 1, 1}); };
    // Counted from elsewhere than rows and positions of the call, where it says so.
    const auto before = [&](const as_tensor& starts, const char* name) {
      if (!present(starts)) return at::zeros({n}, at::kLong);
      const Tensor r = requests.narrow(0, begin, n).clamp_min(0);
      return integers(starts, name, {table.size(0)}).index_select(0, r);
    };
    const Tensor t = present(p.places) ? integers(p.places, "places", {tokens}) : positions;
    const Tensor place = t.narrow(0, begin, n);
    MaskPlaces places;
    places.query = by_token(place - before(p.query_starts, "query_starts"));
    places.key = by_token(place - before(p.row_starts, "row_starts")) +
                 distance(rows, begin, n).to(at::kDouble).unsqueeze(1);
    places.head = at::arange(heads, at::kDouble).view({1, heads, 1});
    places.request = by_token(requests.narrow(0, begin, n));
    Tensor l = scores;
    if (present(p.score_code)) {
      l = Numbers(precision).fp32(evaluated(p.score_code, "score_code", places, l)).to(q.device());
    }
    if (!present(p.mask_code)) return l;
    const Tensor value = evaluated(p.mask_code, "mask_code", places, {});
    const Tensor hidden = value.gt(0).logical_or(value.lt(0)).logical_not();
    return l.expand({n, heads, rows.numel()}).masked_fill(hidden.to(q.device()), kMinusInfinity);
  };
  // Of the cache that each row lies in.
  const auto values = [&](const CacheRows& cache, const std::optional<CacheRows>& of_first,
                          const Tensor& rows) {
    if (!wide) return cache.load(rows);
    const Tensor is_later = rows.lt(behind);
    const Tensor at = is_later.nonzero().squeeze(1);
    const Tensor first = is_later.logical_not().nonzero().squeeze(1);
    Tensor loaded = at::empty({rows.numel(), cache.width()}, q.options());
    if (at.numel() > 0) loaded.index_copy_(0, at, cache.load(rows.index_select(0, at)));
    if (first.numel() == 0) return loaded;
    return loaded.index_copy_(0, first, of_first->load(rows.index_select(0, first) - behind));
  };
  const auto load = [&](const Tensor& rows) {
    return std::make_pair(values(k_cache, k_wide, rows).view({rows.numel(), kv_heads, size}),
                          values(v_cache, v_wide, rows).view({rows.numel(), kv_heads, size_v}));
  };
  Attention a = {q, p.scale, p.soft_cap, sinks, list, all_rows, load, kMinusInfinity, p.o, p.lse};
  if (present(p.alibi_slopes) || present(p.position_bias)) a.bias = bias;
  if (present(p.mask_code) || present(p.score_code)) a.shown = shown;
  attend(a, Numbers(precision));
}

}  // namespace attnscope::reference
