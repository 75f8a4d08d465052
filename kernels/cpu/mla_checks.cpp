#include "kernels/cpu/mla_checks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/layout/mla_rows.h"
#include "kernels/layout/records.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

using I64 = std::int64_t;
using Longs = long long;

// A cache of latent rows.
bool check_latent(const char* name, const as_cache& c, Check& check) {
  const I64 row = as_mla_row_bytes(c.record);
  if (row == 0) {
    const as_row_format* format = as_row_format_of(c.record);
    return check.fail("%s holds record %s (%d); this op takes latent_656 or bf16 there", name,
                      format != nullptr ? format->name : "none", c.record);
  }
  if (as_cache_heads(&c) != 1 || c.width != AS_MLA_WIDTH) {
    return check.fail("%s has rows of %lld heads and %d values; they must be 1 and %d", name,
                      static_cast<Longs>(as_cache_heads(&c)), c.width, AS_MLA_WIDTH);
  }
  if (!check.tensor(name, c.data, AS_U8, {kAny, kAny})) return false;
  if (c.addressing != AS_PAGED && c.addressing != AS_LOGICAL) {
    return check.fail("%s has addressing %d; allowed: AS_PAGED (0), AS_LOGICAL (1)", name,
                      c.addressing);
  }
  if (c.addressing == AS_PAGED && c.rows_per_block <= 0) {
    return check.fail("%s has %d rows per block; a paged cache has at least 1", name,
                      c.rows_per_block);
  }
  const I64 needed = c.addressing == AS_PAGED ? row * c.rows_per_block : row;
  const as_tensor& t = c.data;
  if (t.shape[0] > 0 && t.shape[1] < needed) {
    return check.fail("%s has pages or rows of %lld bytes; it needs %lld", name,
                      static_cast<Longs>(t.shape[1]), static_cast<Longs>(needed));
  }
  if (t.shape[0] > 1 && t.stride[0] < needed) {
    return check.fail("%s has a page stride of %lld bytes, less than a page of %lld", name,
                      static_cast<Longs>(t.stride[0]), static_cast<Longs>(needed));
  }
  // Scales are fp32.
  if (reinterpret_cast<std::uintptr_t>(t.data) % 4 != 0 || t.stride[0] % 4 != 0) {
    return check.fail("%s is not aligned; 4 must divide its base and its page stride", name);
  }
  return true;
}

bool check_rotation(const as_rope& rope, const as_tensor& positions, I64 tokens, bool values,
                    Check& check) {
  if (!check.rope(rope) || !check.tensor("positions", positions, AS_I64, {tokens})) return false;
  for (I64 t = 0; values && t < tokens; ++t) {
    if (!check.rope_position(rope, t, *at<std::int64_t>(positions, t))) return false;
  }
  return true;
}

bool check_dim(const char* what, I64 n, Check& check) {
  if (n >= 8 && n <= AS_MLA_MAX_DIM && n % 8 == 0) return true;
  return check.fail("%s of a head are %lld; allowed: multiples of 8 up to %d", what,
                    static_cast<Longs>(n), AS_MLA_MAX_DIM);
}

bool check_scale(double scale, Check& check) {
  // Lanes compute in fp32.
  if (std::fabs(scale) <= static_cast<double>(std::numeric_limits<float>::max())) return true;
  return check.fail("scale is %g; it must be a finite fp32 number", scale);
}

bool check_seen(const as_mla_attention_params& p, Check& check) {
  const I64 requests = p.table.shape[0], held = cache_rows(p.cache);
  std::vector<I64> known(static_cast<std::size_t>(requests), 0);  // rows that have been looked at
  for (I64 t = 0; t < p.q.shape[0]; ++t) {
    const I64 r = *at<std::int32_t>(p.token_to_req, t);
    if (r < 0) continue;
    if (const I64 position = *at<std::int64_t>(p.positions, t); position < 0) {
      return check.fail("positions[%lld] is %lld; positions start at 0", static_cast<Longs>(t),
                        static_cast<Longs>(position));
    }
    I64& done = known[static_cast<std::size_t>(r)];
    const I64 end = seen_end(p, t);
    const bool paged = p.cache.addressing == AS_PAGED;
    const I64 rows = paged ? p.cache.rows_per_block : std::max<I64>(end, 1);
    for (I64 column = done / rows; done < end && column * rows < end; ++column) {
      if (!check.block("table", p.table, t, r, column)) return false;
      const I64 id = *at<std::int32_t>(p.table, r, column);
      const I64 last = paged ? id * rows + std::min(rows, end - column * rows) - 1 : id + end - 1;
      if (last < held) continue;
      return check.fail("token %lld of request %lld reads slot %lld; the cache has rows 0 to %lld",
                        static_cast<Longs>(t), static_cast<Longs>(r), static_cast<Longs>(last),
                        static_cast<Longs>(held - 1));
    }
    done = std::max(done, end);
  }
  return true;
}

bool check_list(const as_sparse_mla_attention_params& p, Check& check) {
  const I64 held = cache_rows(p.cache);
  for (I64 t = 0; t < p.q.shape[0]; ++t) {
    const I64 length = *at<std::int32_t>(p.topk_length, t);
    if (length > p.indices.shape[1]) {
      return check.fail("topk_length[%lld] is %lld; a list has %lld places", static_cast<Longs>(t),
                        static_cast<Longs>(length), static_cast<Longs>(p.indices.shape[1]));
    }
    for (I64 k = 0; k < length; ++k) {
      const I64 slot = *at<std::int32_t>(p.indices, t, k);
      if (slot < held) continue;
      return check.fail(
          "indices[%lld,%lld] is slot %lld; the cache has rows 0 to %lld (negative = none)",
          static_cast<Longs>(t), static_cast<Longs>(k), static_cast<Longs>(slot),
          static_cast<Longs>(held - 1));
    }
  }
  return true;
}

}  // namespace

std::int64_t seen_end(const as_mla_attention_params& p, std::int64_t t) {
  const I64 r = *at<std::int32_t>(p.token_to_req, t);
  if (r < 0) return 0;
  return std::clamp<I64>(*at<std::int64_t>(p.positions, t) + 1, 0,
                         std::max<I64>(0, *at<std::int32_t>(p.seq_lens, r)));
}

bool check_params(const as_mla_q_absorb_params& p, bool values, Check& check) {
  if (!check.tensor("q_raw", p.q_raw, AS_BF16, {kAny, kAny, kAny})) return false;
  const I64 tokens = p.q_raw.shape[0], heads = p.q_raw.shape[1];
  const I64 plain = p.q_raw.shape[2] - AS_MLA_ROPE;
  if (!check_dim("dims without RoPE", plain, check) ||
      !check.tensor("kv_b", p.kv_b, AS_BF16, {heads, kAny, AS_MLA_LATENT}) ||
      !check.tensor("q", p.q, AS_BF16, {tokens, heads, AS_MLA_WIDTH}) ||
      !check_rotation(p.rope, p.positions, tokens, values, check)) {
    return false;
  }
  if (p.kv_b.shape[1] >= plain) return true;
  return check.fail("kv_b has %lld rows a head, q_raw %lld dims without RoPE; it needs as many",
                    static_cast<Longs>(p.kv_b.shape[1]), static_cast<Longs>(plain));
}

bool check_params(const as_mla_kv_insert_params& p, bool values, Check& check) {
  const bool given = p.rows_given != 0;
  if (given ? !check.tensor("kv_row", p.kv_row, AS_BF16, {kAny, AS_MLA_WIDTH})
            : !check.tensor("kv", p.kv, AS_BF16, {kAny, AS_MLA_LATENT})) {
    return false;
  }
  const I64 tokens = given ? p.kv_row.shape[0] : p.kv.shape[0];
  if (!check.tensor("slots", p.slots, AS_I64, {tokens}) || !check_latent("cache", p.cache, check) ||
      !check.range("scale_rule", p.scale_rule, AS_SCALE_FLOAT, AS_SCALE_POWER_OF_TWO) ||
      (values && !check.slots("slots", p.slots, p.cache))) {
    return false;
  }
  if (given) return true;
  if (!check.tensor("qkv", p.qkv, AS_BF16, {tokens, kAny}) ||
      !check.optional("kv_row", p.kv_row, AS_BF16, {tokens, AS_MLA_WIDTH}) ||
      !check_rotation(p.rope, p.positions, tokens, values, check)) {
    return false;
  }
  if (p.qkv.shape[1] >= AS_MLA_ROPE) return true;
  return check.fail("qkv has %lld columns; its last %d are the rotary key",
                    static_cast<Longs>(p.qkv.shape[1]), AS_MLA_ROPE);
}

bool check_params(const as_index_query_params& p, bool values, Check& check) {
  if (!check.range("hadamard", p.hadamard, 0, 1) ||
      !check.range("scale_rule", p.scale_rule, AS_SCALE_FLOAT, AS_SCALE_POWER_OF_TWO) ||
      !check.tensor("weights_raw", p.weights_raw, AS_F32, {kAny, kAny})) {
    return false;
  }
  const I64 tokens = p.weights_raw.shape[0], heads = p.weights_raw.shape[1];
  if (!check.tensor("q", p.q, AS_U8, {tokens, heads, AS_INDEX_DIM}) ||
      !check.tensor("weights", p.weights, AS_F32, {tokens, heads})) {
    return false;
  }
  if (p.rows_given != 0) {
    return check.tensor("q_row", p.q_row, AS_BF16, {tokens, heads, AS_INDEX_DIM});
  }
  return check.tensor("q_raw", p.q_raw, AS_BF16, {tokens, heads, AS_INDEX_DIM}) &&
         check.optional("q_row", p.q_row, AS_BF16, {tokens, heads, AS_INDEX_DIM}) &&
         check_rotation(p.rope, p.positions, tokens, values, check);
}

bool check_params(const as_index_key_insert_params& p, bool values, Check& check) {
  const bool given = p.rows_given != 0;
  if (!check.tensor(given ? "row" : "k", given ? p.row : p.k, AS_BF16, {kAny, AS_INDEX_DIM})) {
    return false;
  }
  const I64 tokens = given ? p.row.shape[0] : p.k.shape[0];
  if (!check.tensor("slots", p.slots, AS_I64, {tokens}) ||
      !check.cache("cache", p.cache, AS_RECORD_INDEX_FP8, AS_INDEX_DIM) ||
      !check.range("hadamard", p.hadamard, 0, 1) ||
      !check.range("scale_rule", p.scale_rule, AS_SCALE_FLOAT, AS_SCALE_POWER_OF_TWO) ||
      (values && !check.slots("slots", p.slots, p.cache))) {
    return false;
  }
  if (given) return true;
  return check.tensor("weight", p.weight, AS_BF16, {AS_INDEX_DIM}) &&
         check.tensor("bias", p.bias, AS_BF16, {AS_INDEX_DIM}) &&
         check.optional("row", p.row, AS_BF16, {tokens, AS_INDEX_DIM}) &&
         check_rotation(p.rope, p.positions, tokens, values, check);
}

bool check_params(const as_mla_attention_params& p, bool values, Check& check) {
  if (!check.tensor("q", p.q, AS_BF16, {kAny, kAny, AS_MLA_WIDTH})) return false;
  const I64 tokens = p.q.shape[0], heads = p.q.shape[1];
  if (!check_latent("cache", p.cache, check) ||
      !check.tensor("table", p.table, AS_I32, {kAny, kAny}) ||
      !check.tensor("token_to_req", p.token_to_req, AS_I32, {tokens}) ||
      !check.tensor("positions", p.positions, AS_I64, {tokens}) ||
      !check.tensor("seq_lens", p.seq_lens, AS_I32, {p.table.shape[0]}) ||
      !check.tensor("o", p.o, AS_BF16, {tokens, heads, AS_MLA_LATENT}) ||
      !check.tensor("lse", p.lse, AS_F32, {tokens, heads}) || !check_scale(p.scale, check)) {
    return false;
  }
  return !values || (check.requests(p.token_to_req, p.table.shape[0]) && check_seen(p, check));
}

bool check_params(const as_sparse_mla_attention_params& p, bool values, Check& check) {
  if (!check.tensor("q", p.q, AS_BF16, {kAny, kAny, AS_MLA_WIDTH})) return false;
  const I64 tokens = p.q.shape[0], heads = p.q.shape[1];
  if (!check_latent("cache", p.cache, check) ||
      !check.tensor("indices", p.indices, AS_I32, {tokens, kAny}) ||
      !check.tensor("topk_length", p.topk_length, AS_I32, {tokens}) ||
      !check.tensor("o", p.o, AS_BF16, {tokens, heads, AS_MLA_LATENT}) ||
      !check.tensor("lse", p.lse, AS_F32, {tokens, heads}) || !check_scale(p.scale, check)) {
    return false;
  }
  return !values || check_list(p, check);
}

bool check_params(const as_mla_v_up_params& p, bool, Check& check) {
  if (!check.tensor("o", p.o, AS_BF16, {kAny, kAny, AS_MLA_LATENT})) return false;
  const I64 tokens = p.o.shape[0], heads = p.o.shape[1];
  if (!check.tensor("y", p.y, AS_BF16, {tokens, heads, kAny}) ||
      !check_dim("values", p.y.shape[2], check) ||
      !check.tensor("kv_b", p.kv_b, AS_BF16, {heads, kAny, AS_MLA_LATENT})) {
    return false;
  }
  if (p.kv_b.shape[1] >= p.y.shape[2]) return true;
  return check.fail("kv_b has %lld rows a head, y %lld values; it needs as many",
                    static_cast<Longs>(p.kv_b.shape[1]), static_cast<Longs>(p.y.shape[2]));
}

}  // namespace attnscope::cpu
