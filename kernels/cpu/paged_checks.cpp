#include "kernels/cpu/paged_checks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/kv_codes.h"
#include "kernels/cpu/kv_pages.h"
#include "kernels/cpu/mask_code.h"
#include "kernels/cpu/position_bias.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {

namespace {

using I64 = std::int64_t;
using Longs = long long;

bool check_rope(const as_rope_kv_insert_params& p, I64 tokens, I64 size, bool values,
                Check& check) {
  const I64 dims = rotary_dim(p.rope);
  if (dims == 0) {
    // Not read, but lanes may copy it.
    if (p.rope.base == 0) return check.optional("positions", p.positions, AS_I64, {tokens});
    return check.fail("rope.table is absent; give f32 [max_pos,N], or base 0 for no rotation");
  }
  if (!check.tensor("rope.table", p.rope.table, AS_F32, {kAny, kAny}) ||
      !check.tensor("positions", p.positions, AS_I64, {tokens})) {
    return false;
  }
  if (dims % 2 != 0 || dims > size) {
    return check.fail("rope.table has rows of %lld values; allowed: even numbers up to %lld",
                      static_cast<Longs>(dims), static_cast<Longs>(size));
  }
  for (I64 t = 0; values && t < tokens; ++t) {
    if (!check.rope_position(p.rope, t, *at<std::int64_t>(p.positions, t))) return false;
  }
  return true;
}

// 0 * inf, of the token's own row, is no number.
bool check_slopes(const as_paged_attention_params& p, Check& check) {
  for (I64 h = 0; present(p.alibi_slopes) && h < p.alibi_slopes.shape[0]; ++h) {
    const float slope = *at<float>(p.alibi_slopes, h);
    if (std::isfinite(slope)) continue;
    return check.fail("alibi_slopes[%lld] is %g; slopes must be finite", static_cast<Longs>(h),
                      static_cast<double>(slope));
  }
  return true;
}

// The rows that any token of a request sees lie in its blocks, and these in both caches of a table.
struct TableOfTwo {
  const char* name;
  const as_tensor& table;
  const as_cache &k, &v;
};
bool check_blocks(const TableOfTwo& c, I64 token, I64 r, SeenRows seen, Check& check) {
  if (seen.first >= seen.end) return true;
  const bool paged = c.k.addressing == AS_PAGED;
  const I64 rows = paged ? c.k.rows_per_block : seen.end;
  const I64 held = std::min(cache_rows(c.k), cache_rows(c.v));
  for (I64 column = seen.first / rows; column * rows < seen.end; ++column) {
    if (!check.block(c.name, c.table, token, r, column)) return false;
    const I64 id = *at<std::int32_t>(c.table, r, column);
    const I64 last = paged ? id * rows + rows - 1 : id + seen.end - 1;
    if (last < held) continue;
    return check.fail("token %lld of request %lld reads slot %lld; the caches have rows 0 to %lld",
                      static_cast<Longs>(token), static_cast<Longs>(r), static_cast<Longs>(last),
                      static_cast<Longs>(held - 1));
  }
  return true;
}

// Rows of 16 bits beside others.
bool check_wide(const char* name, const as_cache& cache, I64 heads, I64 size, Check& check) {
  if (is_coded(cache.record)) {
    return check.fail("%s holds rows of %s; the first tokens' rows are bf16 or f16", name,
                      as_row_format_of(cache.record)->name);
  }
  return check_kv_cache(name, cache, heads, size, check);
}

bool check_wide(const as_paged_attention_params& p, I64 heads, Check& check) {
  if (!check.range("wide_tokens", p.wide_tokens, 0, INT32_MAX)) return false;
  if (p.wide_tokens == 0) return true;
  if (!check_wide("k_wide", p.k_wide, heads, p.q.shape[2], check) ||
      !check_wide("v_wide", p.v_wide, heads, p.o.shape[2], check) ||
      !check.tensor("wide_table", p.wide_table, AS_I32, {p.table.shape[0], kAny})) {
    return false;
  }
  if (p.k_wide.addressing != p.k_cache.addressing || p.v_wide.addressing != p.k_cache.addressing) {
    return check.fail("k_wide and v_wide are addressed as %d and %d, k_cache as %d; all alike",
                      p.k_wide.addressing, p.v_wide.addressing, p.k_cache.addressing);
  }
  if (p.k_wide.rows_per_block != p.v_wide.rows_per_block) {
    return check.fail("k_wide has %d rows per block, v_wide %d; one table serves both",
                      p.k_wide.rows_per_block, p.v_wide.rows_per_block);
  }
  if (p.chunk == 0) return true;
  return check.fail("chunk is %d beside %d wide_tokens, which count from the request's first token",
                    p.chunk, p.wide_tokens);
}

bool check_values(const as_paged_attention_params& p, Check& check) {
  const I64 requests = p.table.shape[0];
  // Columns of a request that have been looked at already: [first, end) in rows.
  std::vector<SeenRows> known(static_cast<std::size_t>(requests));
  for (I64 t = 0; t < p.q.shape[0]; ++t) {
    const I64 r = *at<std::int32_t>(p.token_to_req, t);
    if (r < 0) continue;
    if (r >= requests) {
      return check.fail(
          "token_to_req[%lld] is %lld; the table has requests 0 to %lld (negative = padding)",
          static_cast<Longs>(t), static_cast<Longs>(r), static_cast<Longs>(requests - 1));
    }
    const I64 position = *at<std::int64_t>(p.positions, t);
    if (position < 0) {
      return check.fail("positions[%lld] is %lld; positions start at 0", static_cast<Longs>(t),
                        static_cast<Longs>(position));
    }
    const SeenRows seen = seen_rows(p, t, r);
    if (seen.first >= seen.end) continue;
    SeenRows& done = known[static_cast<std::size_t>(r)];
    const bool inside = done.first < done.end && seen.first >= done.first;
    if (inside && seen.end <= done.end) continue;
    const I64 from =
        inside && seen.first < done.end ? std::min(done.end, seen.end - 1) : seen.first;
    const I64 wide = p.wide_tokens;
    if (!check_blocks({"table", p.table, p.k_cache, p.v_cache}, t, r,
                      {std::max(from, wide), seen.end}, check) ||
        !check_blocks({"wide_table", p.wide_table, p.k_wide, p.v_wide}, t, r,
                      {from, std::min(seen.end, wide)}, check)) {
      return false;
    }
    done = inside && seen.first <= done.end ? SeenRows{done.first, seen.end} : seen;
  }
  return true;
}

}  // namespace

bool has_wide_rows(const as_rope_kv_insert_params& p) { return p.wide_slots.rank > 0; }

SeenRows seen_rows(const as_paged_attention_params& p, I64 t, I64 r) {
  const I64 position = *at<std::int64_t>(p.positions, t);
  SeenRows seen{0, *at<std::int32_t>(p.seq_lens, r)};
  if (p.causal != 0 && position < seen.end) seen.end = position + 1;
  if (p.window > 0) seen.first = std::max<I64>(0, position - p.window + 1);
  if (p.chunk > 0) seen.first = std::max<I64>(seen.first, position / p.chunk * p.chunk);
  if (present(p.first_rows)) {
    seen.first = std::max<I64>(seen.first, *at<std::int32_t>(p.first_rows, r));
  }
  return seen;
}

MaskOrigin mask_origin(const as_paged_attention_params& p, I64 t, I64 r) {
  const I64 position = *at<std::int64_t>(p.positions, t);
  const I64 moved = present(p.places) ? *at<std::int64_t>(p.places, t) - position : 0;
  MaskOrigin origin{position + moved, moved};
  if (present(p.query_starts)) origin.query -= *at<std::int32_t>(p.query_starts, r);
  if (present(p.row_starts)) origin.row -= *at<std::int32_t>(p.row_starts, r);
  return origin;
}

bool check_params(const as_rope_kv_insert_params& p, bool values, Check& check) {
  if (as_queries_alone(&p) != 0) {
    return check.tensor("q", p.q, AS_BF16, {kAny, kAny, kAny}) &&
           check_head_size("q", p.q.shape[2], check) &&
           check.range("style", p.style, AS_ROPE_NEOX, AS_ROPE_GPTJ) &&
           check.range("weight_plus_one", p.weight_plus_one, 0, 1) &&
           check.optional("q_weight", p.q_weight, AS_BF16, {p.q.shape[2]}) &&
           check_rope(p, p.q.shape[0], p.q.shape[2], values, check) &&
           check.tensor("q_out", p.q_out, AS_BF16, {p.q.shape[0], p.q.shape[1], p.q.shape[2]});
  }
  const char* keys = p.rows_given != 0 ? "k_row" : "k";
  const as_tensor& k = p.rows_given != 0 ? p.k_row : p.k;
  if (!check.tensor(keys, k, AS_BF16, {kAny, kAny, kAny})) return false;
  const I64 tokens = k.shape[0], heads = k.shape[1], size = k.shape[2];
  if (!check.tensor("v", p.v, AS_BF16, {tokens, heads, kAny}) ||
      !check.tensor("slots", p.slots, AS_I64, {tokens}) || !check_head_size(keys, size, check) ||
      !check_head_size("v", p.v.shape[2], check) ||
      !check_kv_cache("k_cache", p.k_cache, heads, size, check) ||
      !check_kv_cache("v_cache", p.v_cache, heads, p.v.shape[2], check) ||
      !check_kv_scale("k_scale", p.k_scale, p.k_cache.record, heads, values, check) ||
      !check_kv_scale("v_scale", p.v_scale, p.v_cache.record, heads, values, check)) {
    return false;
  }
  if (values &&
      (!check.slots("slots", p.slots, p.k_cache) || !check.slots("slots", p.slots, p.v_cache))) {
    return false;
  }
  if (has_wide_rows(p)) {
    if (!check.tensor("wide_slots", p.wide_slots, AS_I64, {tokens}) ||
        !check_wide("k_wide", p.k_wide, heads, size, check) ||
        !check_wide("v_wide", p.v_wide, heads, p.v.shape[2], check)) {
      return false;
    }
    if (values && (!check.slots("wide_slots", p.wide_slots, p.k_wide) ||
                   !check.slots("wide_slots", p.wide_slots, p.v_wide))) {
      return false;
    }
  }
  if (p.rows_given != 0) return true;
  if (!check.range("style", p.style, AS_ROPE_NEOX, AS_ROPE_GPTJ) ||
      !check.range("weight_plus_one", p.weight_plus_one, 0, 1) ||
      !check.optional("k_weight", p.k_weight, AS_BF16, {size}) ||
      !check.optional("k_row", p.k_row, AS_BF16, {tokens, heads, size}) ||
      !check_rope(p, tokens, size, values, check)) {
    return false;
  }
  if (!present(p.q) && p.q.rank == 0) return true;
  return check.tensor("q", p.q, AS_BF16, {tokens, kAny, size}) &&
         check.optional("q_weight", p.q_weight, AS_BF16, {size}) &&
         check.tensor("q_out", p.q_out, AS_BF16, {tokens, p.q.shape[1], size});
}

bool check_params(const as_paged_attention_params& p, bool values, Check& check) {
  if (!check.tensor("q", p.q, AS_BF16, {kAny, kAny, kAny})) return false;
  const I64 tokens = p.q.shape[0], heads = p.q.shape[1];
  const I64 kv_heads = as_cache_heads(&p.k_cache);
  if (!check_head_size("q", p.q.shape[2], check) ||
      !check.tensor("o", p.o, AS_BF16, {tokens, heads, kAny}) ||
      !check_head_size("o", p.o.shape[2], check)) {
    return false;
  }
  if (heads % kv_heads != 0) {
    return check.fail("q has %lld heads, k_cache %lld; the first must be a multiple of the second",
                      static_cast<Longs>(heads), static_cast<Longs>(kv_heads));
  }
  if (!check_kv_cache("k_cache", p.k_cache, kv_heads, p.q.shape[2], check) ||
      !check_kv_cache("v_cache", p.v_cache, kv_heads, p.o.shape[2], check) ||
      !check_kv_scale("k_scale", p.k_scale, p.k_cache.record, kv_heads, values, check) ||
      !check_kv_scale("v_scale", p.v_scale, p.v_cache.record, kv_heads, values, check) ||
      !check.tensor("table", p.table, AS_I32, {kAny, kAny}) ||
      !check.tensor("token_to_req", p.token_to_req, AS_I32, {tokens}) ||
      !check.tensor("positions", p.positions, AS_I64, {tokens}) ||
      !check.tensor("seq_lens", p.seq_lens, AS_I32, {p.table.shape[0]}) ||
      !check.optional("sinks", p.sinks, AS_F32, {heads}) ||
      !check.optional("alibi_slopes", p.alibi_slopes, AS_F32, {heads}) ||
      !check.optional("first_rows", p.first_rows, AS_I32, {p.table.shape[0]}) ||
      !check.tensor("lse", p.lse, AS_F32, {tokens, heads}) ||
      !check.range("causal", p.causal, 0, 1) || !check.range("window", p.window, 0, INT32_MAX) ||
      !check.range("chunk", p.chunk, 0, INT32_MAX) ||
      !check.range("num_splits", p.num_splits, 0, 1 << 16) ||
      !check.range("form", p.form, AS_PAGED_ONE_PASS, AS_PAGED_CASCADE)) {
    return false;
  }
  const bool hides =
      p.causal == 0 || p.window > 0 || p.chunk > 0 || p.first_rows.rank > 0 || p.mask_code.rank > 0;
  if (p.form == AS_PAGED_CASCADE && hides) {
    return check.fail(
        "form is %d (cascade) beside a window, chunk, first_rows or mask_code, or without causal; "
        "every token must see the whole prefix: set form to 0 or 1",
        p.form);
  }
  if (p.k_cache.addressing != p.v_cache.addressing ||
      p.k_cache.rows_per_block != p.v_cache.rows_per_block) {
    return check.fail("k_cache has %d rows per block, v_cache %d; one table serves both",
                      p.k_cache.rows_per_block, p.v_cache.rows_per_block);
  }
  if (!check_wide(p, kv_heads, check)) return false;
  if (p.causal == 0 && p.window > 0) {
    return check.fail("window is %d without causal; set causal to 1, or window to 0", p.window);
  }
  if (p.causal == 0 && p.chunk > 0) {
    return check.fail("chunk is %d without causal; set causal to 1, or chunk to 0", p.chunk);
  }
  // Lanes compute in fp32.
  constexpr double kLeast = std::numeric_limits<float>::min();
  constexpr double kMost = std::numeric_limits<float>::max();
  const bool cap = p.soft_cap == 0 || (p.soft_cap >= kLeast && p.soft_cap <= kMost);
  if (!(std::fabs(p.scale) <= kMost) || !cap) {
    return check.fail(
        "scale is %g, soft_cap %g; both must be finite fp32 numbers, soft_cap 0 or at least %g",
        p.scale, p.soft_cap, kLeast);
  }
  if (!check_mask_code("mask_code", p.mask_code, false, values, check) ||
      !check_mask_code("score_code", p.score_code, true, values, check) ||
      !check.optional("places", p.places, AS_I64, {tokens}) ||
      !check.optional("query_starts", p.query_starts, AS_I32, {p.table.shape[0]}) ||
      !check.optional("row_starts", p.row_starts, AS_I32, {p.table.shape[0]}) ||
      !check_position_bias(p.position_bias, p.bias_distance, p.causal, heads, values, check)) {
    return false;
  }
  return !values || (check_slopes(p, check) && check_values(p, check));
}

}  // namespace attnscope::cpu
