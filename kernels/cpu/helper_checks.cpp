#include <algorithm>
#include <cstdint>
#include <unordered_map>

#include "kernels/cpu/helper_ops.h"
#include "kernels/cpu/kv_codes.h"
#include "kernels/cpu/kv_pages.h"
#include "kernels/layout/records.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

using I64 = std::int64_t;
using Longs = long long;

constexpr I64 kMaxHeads = 65535;  // an axis of a GPU's grid

bool float_or_bf16(const char* name, const as_tensor& t, Check& check) {
  if (t.dtype == AS_BF16 || t.dtype == AS_F32) return true;
  return check.fail("%s is %s; it must be bf16 or f32", name, as_dtype_name(t.dtype));
}

bool positions_fit(const as_rope& rope, const as_tensor& positions, Check& check) {
  for (I64 t = 0; t < positions.shape[0]; ++t) {
    if (!check.rope_position(rope, t, *at<I64>(positions, t))) return false;
  }
  return true;
}

I64 floor_divided(I64 a, I64 b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); }

// Pages of two caches, by address. Those of caches that lie between each other's, at the same
// stride, share none of their bytes.
bool share_memory(const as_tensor& a, const as_tensor& b) {
  if (as_tensor_numel(&a) == 0 || as_tensor_numel(&b) == 0) return false;
  const auto begin = [](const as_tensor& t) { return reinterpret_cast<std::intptr_t>(t.data); };
  const auto end = [&](const as_tensor& t) {
    return begin(t) + (t.shape[0] - 1) * t.stride[0] + t.shape[1];
  };
  if (begin(a) >= end(b) || begin(b) >= end(a)) return false;
  const I64 stride = a.stride[0];
  if (stride != b.stride[0] || stride <= 0) return true;
  // Page i of a and page j of b overlap where -|b| < distance + (j - i) stride < |a|.
  const I64 distance = begin(b) - begin(a);
  const I64 least = std::max(floor_divided(-b.shape[1] - distance, stride) + 1, 1 - a.shape[0]);
  const I64 most = std::min(-floor_divided(distance - a.shape[1], stride) - 1, b.shape[0] - 1);
  return least <= most;
}

bool slots_apart(const as_tensor& slots, Check& check) {
  std::unordered_map<I64, I64> first;
  for (I64 n = 0; n < slots.shape[0]; ++n) {
    const I64 slot = *at<I64>(slots, n);
    if (slot < 0) continue;
    const auto [before, fresh] = first.emplace(slot, n);
    if (fresh) continue;
    return check.fail("slots[%lld] and slots[%lld] are both %lld; a row is converted once",
                      static_cast<Longs>(before->second), static_cast<Longs>(n),
                      static_cast<Longs>(slot));
  }
  return true;
}

// A block is written by one pair at most, and not read by another.
bool pairs_apart(const as_copy_blocks_params& p, Check& check) {
  struct Use {
    I64 pair = -1;
    bool written = false;
  };
  // Blocks by address: `from` and `to` may be the same pool.
  std::unordered_map<const void*, Use> uses;
  for (I64 n = 0; n < p.pairs.shape[0]; ++n) {
    const I64 ids[2] = {*at<I64>(p.pairs, n, 0), *at<I64>(p.pairs, n, 1)};
    if (ids[0] < 0 || ids[1] < 0) continue;
    for (int side = 0; side < 2; ++side) {
      const as_tensor& pool = side == 0 ? p.from : p.to;
      if (ids[side] >= pool.shape[0]) {
        return check.fail("pairs[%lld] names block %lld of %s, which has blocks 0 to %lld",
                          static_cast<Longs>(n), static_cast<Longs>(ids[side]),
                          side == 0 ? "from" : "to", static_cast<Longs>(pool.shape[0] - 1));
      }
      const bool written = side == 1 || p.exchange != 0;
      const auto [it, fresh] = uses.try_emplace(at<unsigned char>(pool, ids[side]), n, written);
      if (fresh || (!written && !it->second.written)) continue;
      return check.fail(
          "pairs[%lld] and pairs[%lld] meet at block %lld, which one of them writes; give each "
          "block that is written to one pair alone",
          static_cast<Longs>(it->second.pair), static_cast<Longs>(n),
          static_cast<Longs>(ids[side]));
    }
  }
  return true;
}

as_tensor on_host(as_tensor t) {
  t.device = 0;
  return t;
}

}  // namespace

bool check_params(const as_merge_states_params& p, bool, Check& check) {
  if (!float_or_bf16("a", p.a, check) || !check.tensor("a", p.a, p.a.dtype, {kAny, kAny, kAny})) {
    return false;
  }
  const I64 tokens = p.a.shape[0], heads = p.a.shape[1], dim = p.a.shape[2];
  return check.range("heads", heads, 0, kMaxHeads) &&
         check.tensor("lse_a", p.lse_a, AS_F32, {tokens, heads}) &&
         check.tensor("b", p.b, p.a.dtype, {tokens, heads, dim}) &&
         check.tensor("lse_b", p.lse_b, AS_F32, {tokens, heads}) &&
         check.tensor("out", p.out, p.a.dtype, {tokens, heads, dim}) &&
         check.tensor("lse", p.lse, AS_F32, {tokens, heads}) &&
         check.range("base_2", p.base_2, 0, 1);
}

bool check_params(const as_gather_rows_params& p, bool values, Check& check) {
  const std::int32_t record = p.cache.record;
  if (record < AS_RECORD_LATENT || record > AS_RECORD_STATE) {
    return check.fail("cache holds record %d; allowed: AS_RECORD_LATENT to AS_RECORD_STATE",
                      record);
  }
  const I64 width = record == AS_RECORD_LATENT  ? AS_HEAD_DIM
                    : record == AS_RECORD_STATE ? p.cache.width
                                                : AS_INDEX_DIM;
  if (!check.cache("cache", p.cache, record, width) ||
      !check.tensor("slots", p.slots, AS_I64, {kAny}) || !float_or_bf16("out", p.out, check)) {
    return false;
  }
  if (record == AS_RECORD_STATE && p.out.dtype != AS_F32) {
    return check.fail("out is %s; state rows are read as f32", as_dtype_name(p.out.dtype));
  }
  return check.tensor("out", p.out, p.out.dtype, {p.slots.shape[0], width}) &&
         (!values || check.slots("slots", p.slots, p.cache));
}

bool check_params(const as_convert_rows_params& p, bool values, Check& check) {
  const I64 heads = as_cache_heads(&p.from);
  const I64 size = p.from.width / heads;
  if (!check_kv_cache("from", p.from, heads, size, check) ||
      !check_head_size("from", size, check) || !check_kv_cache("to", p.to, heads, size, check) ||
      !check.tensor("slots", p.slots, AS_I64, {kAny}) ||
      !check_kv_scale("from_scale", p.from_scale, p.from.record, heads, values, check) ||
      !check_kv_scale("to_scale", p.to_scale, p.to.record, heads, values, check)) {
    return false;
  }
  if (share_memory(p.from.data, p.to.data)) {
    return check.fail("from and to share memory: a row would be read after it was written");
  }
  return !values || (check.slots("slots", p.slots, p.from) && check.slots("slots", p.slots, p.to) &&
                     slots_apart(p.slots, check));
}

bool check_params(const as_copy_blocks_params& p, bool values, Check& check) {
  const as_tensor from = on_host(p.from), to = on_host(p.to), pairs = on_host(p.pairs);
  return check.tensor("from", from, AS_U8, {kAny, kAny}) &&
         check.tensor("to", to, AS_U8, {kAny, from.shape[1]}) &&
         check.tensor("pairs", pairs, AS_I64, {kAny, 2}) &&
         check.range("exchange", p.exchange, 0, 1) && (!values || pairs_apart(p, check));
}

bool check_params(const as_workspace_attention_params& p, bool values, Check& check) {
  if (!check.tensor("q", p.q, AS_BF16, {kAny, kAny, AS_HEAD_DIM})) return false;
  const I64 tokens = p.q.shape[0], heads = p.q.shape[1];
  if (!check.range("heads", heads, 0, kMaxHeads) ||
      !check.tensor("rows", p.rows, AS_BF16, {kAny, AS_HEAD_DIM}) ||
      !check.tensor("indices", p.indices, AS_I32, {tokens, kAny}) ||
      !check.tensor("topk_length", p.topk_length, AS_I32, {tokens}) ||
      !check.tensor("sinks", p.sinks, AS_F32, {heads}) ||
      !check.tensor("o", p.o, AS_BF16, {tokens, heads, AS_HEAD_DIM}) ||
      !check.tensor("lse", p.lse, AS_F32, {tokens, heads})) {
    return false;
  }
  for (I64 t = 0; values && t < tokens; ++t) {
    const std::int32_t len = *at<std::int32_t>(p.topk_length, t);
    if (len > p.indices.shape[1]) {
      return check.fail("topk_length[%lld] is %d; a row of indices holds 0 to %lld",
                        static_cast<Longs>(t), len, static_cast<Longs>(p.indices.shape[1]));
    }
    for (std::int32_t k = 0; k < len; ++k) {
      const std::int32_t row = *at<std::int32_t>(p.indices, t, k);
      if (row < p.rows.shape[0]) continue;
      return check.fail("indices[%lld,%d] is %d; rows are 0 to %lld (negative = none)",
                        static_cast<Longs>(t), k, row, static_cast<Longs>(p.rows.shape[0] - 1));
    }
  }
  return true;
}

bool check_params(const as_inverse_rope_quantise_params& p, bool values, Check& check) {
  if (!check.tensor("o", p.o, AS_BF16, {kAny, kAny, kAny}) || !check.rope(p.rope)) return false;
  const I64 tokens = p.o.shape[0], heads = p.o.shape[1], dim = p.o.shape[2];
  if (dim <= 0 || dim % 128 != 0) {
    return check.fail("heads of o are %lld wide; allowed: multiples of 128",
                      static_cast<Longs>(dim));
  }
  return check.range("heads", heads, 0, kMaxHeads) &&
         check.tensor("positions", p.positions, AS_I64, {tokens}) &&
         check.tensor("codes", p.codes, AS_U8, {tokens, heads, dim}) &&
         check.tensor("scales", p.scales, AS_F32, {tokens, heads, dim / 128}) &&
         (!values || positions_fit(p.rope, p.positions, check));
}

bool check_params(const as_fp8_linear_params& p, bool, Check& check) {
  if (!check.tensor("x", p.x, AS_U8, {kAny, kAny}) || !float_or_bf16("y", p.y, check)) return false;
  const I64 rows = p.x.shape[0], in = p.x.shape[1];
  if (in % 128 != 0) {
    return check.fail("x has %lld inputs; allowed: multiples of 128", static_cast<Longs>(in));
  }
  if (!check.tensor("weight", p.weight, AS_U8, {kAny, in})) return false;
  const I64 out = p.weight.shape[0];
  return check.tensor("x_scale", p.x_scale, AS_F32, {rows, in / 128}) &&
         check.tensor("weight_scale", p.weight_scale, AS_F32, {(out + 127) / 128, in / 128}) &&
         check.tensor("y", p.y, p.y.dtype, {rows, out});
}

}  // namespace attnscope::cpu
