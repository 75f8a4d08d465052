// Absorbed MLA: queries into latent space, latent rows into their cache, attention over rows that
// are key and value of all heads, outputs back through the values' part of kv_b_proj.
#include <cmath>
#include <limits>
#include <string>

#include "reference/ops.h"
#include "reference/torch/attention.h"
#include "reference/torch/cache_rows.h"
#include "reference/torch/rotary.h"
#include "reference/torch/weights.h"

namespace attnscope::reference {

namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

// kv_b as float64, rows first .. first + n - 1 of each head: [H,n,512].
Tensor up_rows(const as_tensor& kv_b, std::int64_t heads, std::int64_t first, std::int64_t n,
               const Precision& precision) {
  check(kv_b, "kv_b", Kind::kFloat, {heads, kAny, AS_MLA_LATENT});
  if (first < 0 || first + n > kv_b.shape[1]) {
    throw BadInput("kv_b has " + std::to_string(kv_b.shape[1]) + " rows a head; it needs " +
                   std::to_string(n));
  }
  return weight_in_place(kv_b, precision.weights).narrow(1, first, n).to(at::kDouble);
}

// Keys and values of rows: all dims, and the latent ones.
std::pair<Tensor, Tensor> keys_and_values(const CacheRows& cache, const Tensor& rows) {
  const Tensor x = cache.load(rows).unsqueeze(1);
  return {x, x.narrow(2, 0, AS_MLA_LATENT)};
}

Tensor no_sinks(const Tensor& q) { return at::full({q.size(1)}, kNothing, q.options()); }

}  // namespace

void mla_q_absorb(const as_mla_q_absorb_params& p, const Precision& precision) {
  const Numbers numbers(precision);
  const Tensor raw = floats(p.q_raw, "q_raw", {kAny, kAny, kAny});
  const std::int64_t tokens = raw.size(0), heads = raw.size(1);
  const std::int64_t plain = raw.size(2) - AS_MLA_ROPE;
  check(p.q, "q", Kind::kFloat, {tokens, heads, AS_MLA_WIDTH});
  const Tensor positions = integers(p.positions, "positions", {tokens});
  if (plain < 1) throw BadInput("q_raw has no dims without RoPE");
  const Tensor up = up_rows(p.kv_b, heads, 0, plain, precision);
  if (tokens == 0) return;
  const Tensor latent = numbers.product(raw.narrow(2, 0, plain).transpose(0, 1), up);  // [H,T,512]
  const Tensor turned =
      rotated(raw.narrow(2, plain, AS_MLA_ROPE), rotation_of(p.rope, positions, numbers.exact));
  put_bf16(p.q, at::cat({latent.transpose(0, 1), turned}, 2), numbers);
}

void mla_kv_insert(const as_mla_kv_insert_params& p, const Precision& precision) {
  const Numbers numbers(precision);
  const Tensor slots = integers(p.slots, "slots", {kAny});
  const std::int64_t tokens = slots.size(0);
  const CacheRows cache(p.cache, "cache", kMlaRecord, AS_MLA_WIDTH);
  check_rule("scale_rule", p.scale_rule, AS_SCALE_POWER_OF_TWO);
  Quantiser quantiser;
  quantiser.scale_rule = p.scale_rule;
  if (p.rows_given != 0) {
    return cache.store(slots, floats(p.kv_row, "kv_row", {tokens, AS_MLA_WIDTH}), numbers,
                       quantiser);
  }
  const Tensor kv = floats(p.kv, "kv", {tokens, AS_MLA_LATENT});
  const Tensor qkv = floats(p.qkv, "qkv", {tokens, kAny});
  if (qkv.size(1) < AS_MLA_ROPE) throw BadInput("qkv has no 64 columns for the rotary key");
  const Tensor positions = integers(p.positions, "positions", {tokens});
  const Tensor key = qkv.narrow(1, qkv.size(1) - AS_MLA_ROPE, AS_MLA_ROPE);
  const Tensor turned = rotated(key, rotation_of(p.rope, positions, numbers.exact));
  const Tensor row = at::cat({kv, numbers.bf16(turned)}, 1);
  if (present(p.kv_row)) {
    check(p.kv_row, "kv_row", Kind::kFloat, {tokens, AS_MLA_WIDTH});
    put(p.kv_row, row);
  }
  cache.store(slots, row, numbers, quantiser);
}

void mla_attention(const as_mla_attention_params& p, const Precision& precision) {
  const Tensor q = floats(p.q, "q", {kAny, kAny, AS_MLA_WIDTH});
  const std::int64_t tokens = q.size(0), heads = q.size(1);
  check(p.o, "o", Kind::kFloat, {tokens, heads, AS_MLA_LATENT});
  check(p.lse, "lse", Kind::kFloat, {tokens, heads});
  const CacheRows cache(p.cache, "cache", kMlaRecord, AS_MLA_WIDTH);
  const Tensor table = integers(p.table, "table", {kAny, kAny});
  const Tensor requests = integers(p.token_to_req, "token_to_req", {tokens});
  const Tensor positions = integers(p.positions, "positions", {tokens});
  const Tensor seq_lens = integers(p.seq_lens, "seq_lens", {table.size(0)});
  check_indices(requests.clamp_min(0), std::max<std::int64_t>(table.size(0), 1),
                "row of the table");
  const auto list = [&](std::int64_t begin, std::int64_t n) {
    if (table.size(0) == 0) return at::full({n, 1}, -1, at::kLong);
    const Tensor request = requests.narrow(0, begin, n), r = request.clamp_min(0);
    const Tensor known = seq_lens.index_select(0, r).masked_fill(request.lt(0), 0);
    const Tensor end = at::minimum(known, positions.narrow(0, begin, n) + 1);
    const Tensor row = at::arange(std::max<std::int64_t>(end.max().item<std::int64_t>(), 1));
    const Tensor unseen = row.ge(end.unsqueeze(1));
    const Tensor slots = table.index_select(0, r).select(1, 0).unsqueeze(1) + row;
    check_indices(slots.masked_fill(unseen, 0), std::max<std::int64_t>(cache.size(), 1), "cache",
                  begin);
    return slots.masked_fill(unseen, -1);
  };
  const auto load = [&](const Tensor& rows) { return keys_and_values(cache, rows); };
  attend({q, p.scale, 0, no_sinks(q), list, cache.size(), load, kNothing, p.o, p.lse},
         Numbers(precision));
}

void sparse_mla_attention(const as_sparse_mla_attention_params& p, const Precision& precision) {
  const Tensor q = floats(p.q, "q", {kAny, kAny, AS_MLA_WIDTH});
  const std::int64_t tokens = q.size(0), heads = q.size(1);
  check(p.o, "o", Kind::kFloat, {tokens, heads, AS_MLA_LATENT});
  check(p.lse, "lse", Kind::kFloat, {tokens, heads});
  const CacheRows cache(p.cache, "cache", kMlaRecord, AS_MLA_WIDTH);
  const Tensor valid =
      valid_rows(cache.size(), p.indices, p.topk_length, tokens, "indices", "topk_length");
  const auto list = [&](std::int64_t begin, std::int64_t n) { return valid.narrow(0, begin, n); };
  const auto load = [&](const Tensor& rows) { return keys_and_values(cache, rows); };
  attend({q, p.scale, 0, no_sinks(q), list, cache.size(), load, kNothing, p.o, p.lse},
         Numbers(precision));
}

void mla_v_up(const as_mla_v_up_params& p, const Precision& precision) {
  const Numbers numbers(precision);
  const Tensor o = floats(p.o, "o", {kAny, kAny, AS_MLA_LATENT});
  const std::int64_t tokens = o.size(0), heads = o.size(1);
  check(p.y, "y", Kind::kFloat, {tokens, heads, kAny});
  check(p.kv_b, "kv_b", Kind::kFloat, {heads, kAny, AS_MLA_LATENT});
  const std::int64_t values = p.y.shape[2];
  const Tensor up = up_rows(p.kv_b, heads, p.kv_b.shape[1] - values, values, precision);
  if (tokens == 0) return;
  const Tensor y = numbers.product(o.transpose(0, 1), up.transpose(1, 2));  // [H,T,V]
  put_bf16(p.y, y.transpose(0, 1), numbers);
}

}  // namespace attnscope::reference
