#include "kernels/cuda/check_params.h"

#include <algorithm>

#include "kernels/cpu/inverse_rope_check.h"
#include "kernels/cpu/linear_check.h"
#include "kernels/cpu/prefill_workspace.h"
#include "kernels/layout/records.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cuda {
namespace {

using cpu::Check;
using cpu::kAny;
using I64 = std::int64_t;
using Longs = long long;

constexpr I64 kMaxHeads = 512;  // of the indexer: their queries lie in shared memory

I64 i32(const as_tensor& t, I64 i, I64 j = 0, I64 k = 0) { return *at<std::int32_t>(t, i, j, k); }
I64 i64(const as_tensor& t, I64 i) { return *at<std::int64_t>(t, i); }

// A block's slots are 32-bit numbers.
bool narrow_slots(const char* table, I64 token, I64 id, I64 rows, Check& check) {
  if ((id + 1) * rows - 1 <= INT32_MAX) return true;
  return check.fail("token %lld: %s holds block %lld; slots must lie in 0 to %d",
                    static_cast<Longs>(token), table, static_cast<Longs>(id), INT32_MAX);
}

// The position of a token of a live request is not negative.
bool position_known(I64 token, I64 position, Check& check) {
  if (position >= 0) return true;
  return check.fail("positions[%lld] is %lld; positions start at 0", static_cast<Longs>(token),
                    static_cast<Longs>(position));
}

bool rope_positions(const as_rope& rope, const as_tensor& positions, Check& check) {
  for (I64 t = 0; t < positions.shape[0]; ++t) {
    if (!check.rope_position(rope, t, i64(positions, t))) return false;
  }
  return true;
}

// Entries of a list lie in its cache.
bool list(const char* name, const as_tensor& slots, const as_tensor& lens, const as_cache& cache,
          Check& check) {
  const I64 rows = cpu::cache_rows(cache);
  for (I64 t = 0; t < slots.shape[0]; ++t) {
    const I64 len = i32(lens, t);
    if (len > slots.shape[1]) {
      return check.fail("token %lld has %lld entries in %s, whose rows hold 0 to %lld",
                        static_cast<Longs>(t), static_cast<Longs>(len), name,
                        static_cast<Longs>(slots.shape[1]));
    }
    for (I64 k = 0; k < len; ++k) {
      if (i32(slots, t, k) < rows) continue;
      return check.fail(
          "%s[%lld,%lld] is slot %lld; the cache has rows 0 to %lld (negative = none)", name,
          static_cast<Longs>(t), static_cast<Longs>(k), static_cast<Longs>(i32(slots, t, k)),
          static_cast<Longs>(rows - 1));
    }
  }
  return true;
}

// Entries [first, last] of a token's request, counted in rows of a paged or logical cache, lie in
// the table and in the cache.
bool entries(const as_cache& cache, const as_tensor& table, I64 token, I64 request, I64 first,
             I64 last, Check& check) {
  const bool paged = cache.addressing == AS_PAGED;
  const I64 rows = paged ? cache.rows_per_block : last + 1;
  for (I64 column = first / rows; column <= last / rows; ++column) {
    if (!check.block("table", table, token, request, paged ? column : 0)) return false;
    const I64 final_row = paged ? rows - 1 : last;
    const I64 id = i32(table, request, paged ? column : 0);
    const I64 slot = paged ? id * rows + std::min(final_row, last - column * rows) : id + last;
    if (slot >= cpu::cache_rows(cache)) {
      return check.fail(
          "token %lld: row %lld of request %lld lies in slot %lld; the cache has "
          "rows 0 to %lld",
          static_cast<Longs>(token), static_cast<Longs>(last), static_cast<Longs>(request),
          static_cast<Longs>(slot), static_cast<Longs>(cpu::cache_rows(cache) - 1));
    }
  }
  return true;
}

bool lens_fit(const as_tensor& lens, I64 columns, Check& check) {
  for (I64 t = 0; t < lens.shape[0]; ++t) {
    if (i32(lens, t) < 0 || i32(lens, t) > columns) {
      return check.fail("lens[%lld] is %lld; a row of logits has 0 to %lld columns",
                        static_cast<Longs>(t), static_cast<Longs>(i32(lens, t)),
                        static_cast<Longs>(columns));
    }
  }
  return true;
}

bool compressed_slots(const as_slot_mapping_params& p, const as_tensor& out, const char* name,
                      I64 ratio, bool values, Check& check) {
  if (!present(out) || out.shape[0] == 0) return true;
  if (p.mla_group < 0 || p.mla_group >= p.groups.shape[0]) {
    return check.fail("mla_group is %d but %s is asked for; allowed: 0 to %lld", p.mla_group, name,
                      static_cast<Longs>(p.groups.shape[0] - 1));
  }
  if (values && i32(p.groups, p.mla_group) % ratio != 0) {
    return check.fail("the full group has %lld tokens per block; %s needs a multiple of %lld",
                      static_cast<Longs>(i32(p.groups, p.mla_group)), name,
                      static_cast<Longs>(ratio));
  }
  return true;
}

// [R,C] of one group out of [G,R,C].
as_tensor group_table(const as_tensor& tables, I64 group) {
  as_tensor table = tables;
  table.data = at<std::int32_t>(tables, group);
  table.rank = 2;
  for (int i = 0; i < 2; ++i) {
    table.shape[i] = tables.shape[i + 1];
    table.stride[i] = tables.stride[i + 1];
  }
  return table;
}

}  // namespace

bool check_alignment(const char* name, const as_tensor& t, Check& check) {
  auto bits = reinterpret_cast<std::uintptr_t>(t.data);
  for (std::int32_t i = 0; i + 1 < t.rank; ++i) {
    if (t.shape[i] > 1) bits |= static_cast<std::uintptr_t>(t.stride[i] * as_dtype_size(t.dtype));
  }
  if (bits % 16 == 0) return true;
  return check.fail("%s is not aligned; its base and row strides must be multiples of 16 bytes",
                    name);
}

bool check_alignment(const char* name, const as_cache& c, Check& check) {
  return check_alignment(name, c.data, check);
}

bool check_params(const as_slot_mapping_params& p, bool values, Check& check) {
  if (!check.tensor("groups", p.groups, AS_I32, {kAny, 2})) return false;
  const I64 groups = p.groups.shape[0];
  if (!check.tensor("tables", p.tables, AS_I32, {groups, kAny, kAny}) ||
      !check.tensor("positions", p.positions, AS_I64, {kAny})) {
    return false;
  }
  const I64 tokens = p.positions.shape[0];
  if (!check.tensor("token_to_req", p.token_to_req, AS_I32, {tokens}) ||
      !check.tensor("slots", p.slots, AS_I64, {groups, tokens}) ||
      !check.optional("c4_slots", p.c4_slots, AS_I64, {tokens}) ||
      !check.optional("c128_slots", p.c128_slots, AS_I64, {tokens}) ||
      !check.optional("c4_lens", p.c4_lens, AS_I32, {tokens}) ||
      !check.optional("seen_lens", p.seen_lens, AS_I32, {tokens}) ||
      !compressed_slots(p, p.c4_slots, "c4_slots", 4, values, check) ||
      !compressed_slots(p, p.c128_slots, "c128_slots", 128, values, check)) {
    return false;
  }
  if (!values) return true;
  if (!check.requests(p.token_to_req, p.tables.shape[1])) return false;
  for (I64 g = 0; g < groups && tokens > 0; ++g) {
    const I64 rows = i32(p.groups, g);
    if (!check.range("block_size", rows, 1, INT32_MAX)) return false;
    const I64 most = as_first_with_rows(static_cast<std::int32_t>(i32(p.groups, g, 1)));
    for (I64 t = 0; t < tokens; ++t) {
      if (i32(p.token_to_req, t) < 0) continue;
      if (!position_known(t, i64(p.positions, t), check)) return false;
      if (most >= 0 && i64(p.positions, t) >= most) continue;
      if (!check.block("tables", group_table(p.tables, g), t, i32(p.token_to_req, t),
                       i64(p.positions, t) / rows)) {
        return false;
      }
    }
  }
  return true;
}

bool check_params(const as_swa_index_params& p, bool values, Check& check) {
  if (!check.range("block_size", p.block_size, 1, INT32_MAX) ||
      !check.range("window", p.window, 1, INT32_MAX) ||
      !check.tensor("tables", p.tables, AS_I32, {kAny, kAny, kAny}) ||
      !check.tensor("token_to_req", p.token_to_req, AS_I32, {kAny})) {
    return false;
  }
  const I64 groups = p.tables.shape[0], requests = p.tables.shape[1];
  const I64 tokens = p.token_to_req.shape[0];
  if (!check.tensor("query_start_loc", p.query_start_loc, AS_I32, {requests + 1}) ||
      !check.tensor("seq_lens", p.seq_lens, AS_I32, {requests}) ||
      !check.tensor("indices", p.indices, AS_I32, {groups, tokens, p.window}) ||
      !check.tensor("lens", p.lens, AS_I32, {tokens})) {
    return false;
  }
  if (!values) return true;
  if (!check.requests(p.token_to_req, requests)) return false;
  for (I64 t = 0; t < tokens; ++t) {
    const I64 r = i32(p.token_to_req, t);
    if (r < 0) continue;
    const I64 first = i32(p.query_start_loc, r), end = i32(p.query_start_loc, r + 1);
    const I64 position = i32(p.seq_lens, r) - (end - first) + (t - first);
    if (t < first || t >= end || position < 0) {
      return check.fail(
          "token %lld of request %lld: query_start_loc gives tokens %lld to %lld, "
          "position %lld; the token must lie inside and its position must not be "
          "negative",
          static_cast<Longs>(t), static_cast<Longs>(r), static_cast<Longs>(first),
          static_cast<Longs>(end - 1), static_cast<Longs>(position));
    }
    const I64 oldest = std::max<I64>(position - p.window + 1, 0) / p.block_size;
    for (I64 g = 0; g < groups; ++g) {
      for (I64 c = oldest; c <= position / p.block_size; ++c) {
        if (!check.block("tables", group_table(p.tables, g), t, r, c) ||
            !narrow_slots("tables", t, i32(p.tables, g, r, c), p.block_size, check)) {
          return false;
        }
      }
    }
  }
  return true;
}

bool check_params(const as_c128_index_params& p, bool values, Check& check) {
  if (!check.range("ratio", p.ratio, 1, INT32_MAX) ||
      !check.range("rows_per_block", p.rows_per_block, 1, INT32_MAX) ||
      !check.tensor("table", p.table, AS_I32, {kAny, kAny}) ||
      !check.tensor("positions", p.positions, AS_I64, {kAny})) {
    return false;
  }
  const I64 tokens = p.positions.shape[0];
  if (!check.tensor("token_to_req", p.token_to_req, AS_I32, {tokens}) ||
      !check.tensor("indices", p.indices, AS_I32, {tokens, kAny}) ||
      !check.tensor("lens", p.lens, AS_I32, {tokens})) {
    return false;
  }
  if (!values) return true;
  if (!check.requests(p.token_to_req, p.table.shape[0])) return false;
  for (I64 t = 0; t < tokens; ++t) {
    const I64 r = i32(p.token_to_req, t);
    if (r < 0) continue;
    const I64 position = i64(p.positions, t);
    const I64 n = (position + 1) / p.ratio;
    if (position < 0 || n > p.indices.shape[1]) {
      return check.fail(
          "token %lld at position %lld sees %lld entries; a row of indices holds 0 "
          "to %lld (see as_c128_index_width)",
          static_cast<Longs>(t), static_cast<Longs>(position), static_cast<Longs>(n),
          static_cast<Longs>(p.indices.shape[1]));
    }
    for (I64 c = 0; c * p.rows_per_block < n; ++c) {
      if (!check.block("table", p.table, t, r, c) ||
          !narrow_slots("table", t, i32(p.table, r, c), p.rows_per_block, check)) {
        return false;
      }
    }
  }
  return true;
}

bool check_params(const as_rms_norm_params& p, bool, Check& check) {
  if (!check.tensor("weight", p.weight, AS_BF16, {kAny})) return false;
  const I64 width = p.weight.shape[0];
  return check.tensor("x", p.x, AS_BF16, {kAny, width}) &&
         check.tensor("y", p.y, AS_BF16, {p.x.shape[0], width});
}

bool check_params(const as_q_kv_norm_params& p, bool, Check& check) {
  if (!check.tensor("q_weight", p.q_weight, AS_BF16, {kAny}) ||
      !check.tensor("kv_weight", p.kv_weight, AS_BF16, {kAny})) {
    return false;
  }
  const I64 q_width = p.q_weight.shape[0], kv_width = p.kv_weight.shape[0];
  return check.tensor("qkv", p.qkv, AS_BF16, {kAny, kAny}) &&
         check.range("columns of qkv", p.qkv.shape[1], q_width + kv_width, INT32_MAX) &&
         check.tensor("qr", p.qr, AS_BF16, {p.qkv.shape[0], q_width}) &&
         check.tensor("kv", p.kv, AS_BF16, {p.qkv.shape[0], kv_width});
}

bool check_params(const as_linear_params& p, bool, Check& check) {
  return cpu::check_linear(p, check);
}

bool check_params(const as_grouped_linear_params& p, bool, Check& check) {
  return cpu::check_grouped_linear(p, check);
}

bool check_params(const as_residual_params& p, bool, Check& check) {
  return check.tensor("h", p.h, AS_BF16, {kAny, kAny}) &&
         check.tensor("y", p.y, AS_BF16, {p.h.shape[0], p.h.shape[1]}) &&
         check.tensor("out", p.out, AS_BF16, {p.h.shape[0], p.h.shape[1]});
}

bool check_params(const as_q_rope_kv_insert_params& p, bool values, Check& check) {
  if (!check.tensor("slots", p.slots, AS_I64, {kAny})) return false;
  const I64 tokens = p.slots.shape[0];
  if (!check.cache("cache", p.cache, AS_RECORD_LATENT, AS_HEAD_DIM) ||
      (values && !check.slots("slots", p.slots, p.cache))) {
    return false;
  }
  if (!check.range("q_norm", p.q_norm, AS_Q_NORM_FP32, AS_Q_NORM_BF16_FACTOR) ||
      !check.range("scale_floor", p.scale_floor, AS_SCALE_FLOOR_1E4, AS_SCALE_FLOOR_1E8)) {
    return false;
  }
  if (p.rows_given != 0) return check.tensor("kv_row", p.kv_row, AS_BF16, {tokens, AS_HEAD_DIM});
  return check.tensor("q_raw", p.q_raw, AS_BF16, {tokens, kAny, AS_HEAD_DIM}) &&
         check.tensor("kv", p.kv, AS_BF16, {tokens, AS_HEAD_DIM}) &&
         check.tensor("positions", p.positions, AS_I64, {tokens}) && check.rope(p.rope) &&
         check.tensor("q", p.q, AS_BF16, {tokens, p.q_raw.shape[1], AS_HEAD_DIM}) &&
         check.optional("kv_row", p.kv_row, AS_BF16, {tokens, AS_HEAD_DIM}) &&
         (!values || rope_positions(p.rope, p.positions, check));
}

bool check_params(const as_sparse_attention_params& p, bool values, Check& check) {
  if (!check.tensor("q", p.q, AS_BF16, {kAny, kAny, AS_HEAD_DIM})) return false;
  const I64 tokens = p.q.shape[0], heads = p.q.shape[1];
  if (!check.cache("cache", p.cache, AS_RECORD_LATENT, AS_HEAD_DIM) ||
      !check.tensor("indices", p.indices, AS_I32, {tokens, kAny}) ||
      !check.tensor("topk_length", p.topk_length, AS_I32, {tokens}) ||
      !check.tensor("sinks", p.sinks, AS_F32, {heads}) ||
      !check.tensor("o", p.o, AS_BF16, {tokens, heads, AS_HEAD_DIM}) ||
      !check.tensor("lse", p.lse, AS_F32, {tokens, heads}) ||
      !cpu::check_prefill(p.prefill, tokens, values, check) ||
      (values && !list("indices", p.indices, p.topk_length, p.cache, check)) ||
      !cpu::check_plan(p, values, check)) {
    return false;
  }
  if (p.extra_cache.record == AS_RECORD_NONE) return true;
  return check.cache("extra_cache", p.extra_cache, AS_RECORD_LATENT, AS_HEAD_DIM) &&
         check.tensor("extra_indices", p.extra_indices, AS_I32, {tokens, kAny}) &&
         check.tensor("extra_topk_length", p.extra_topk_length, AS_I32, {tokens}) &&
         (!values ||
          list("extra_indices", p.extra_indices, p.extra_topk_length, p.extra_cache, check));
}

bool check_params(const as_inverse_rope_params& p, bool values, Check& check) {
  return cpu::check_inverse_rope(p, check) &&
         (!values || p.rows_given != 0 || rope_positions(p.rope, p.positions, check));
}

bool check_params(const as_compressor_state_params& p, bool values, Check& check) {
  if (p.ratio != 4 && p.ratio != 128) return check.fail("ratio is %d; allowed: 4, 128", p.ratio);
  if (!check.tensor("ape", p.ape, AS_F32, {p.ratio, kAny}) ||
      !check.tensor("proj", p.proj, AS_F32, {kAny, 2 * p.ape.shape[1]})) {
    return false;
  }
  const I64 tokens = p.proj.shape[0];
  if (!check.tensor("positions", p.positions, AS_I64, {tokens}) ||
      !check.tensor("slots", p.slots, AS_I64, {tokens}) ||
      !check.cache("state", p.state, AS_RECORD_STATE, 2 * p.ape.shape[1])) {
    return false;
  }
  if (!values) return true;
  if (!check.slots("slots", p.slots, p.state)) return false;
  for (I64 t = 0; t < tokens; ++t) {
    if (i64(p.slots, t) >= 0 && !position_known(t, i64(p.positions, t), check)) return false;
  }
  return true;
}

bool check_params(const as_compress_insert_params& p, bool values, Check& check) {
  if (p.ratio != 4 && p.ratio != 128) return check.fail("ratio is %d; allowed: 4, 128", p.ratio);
  const bool latent = p.cache.record == AS_RECORD_LATENT;
  const I64 dim = latent ? AS_HEAD_DIM : AS_INDEX_DIM;
  const I64 coff = p.ratio == 4 ? 2 : 1;
  const std::int32_t record = latent || p.cache.record == AS_RECORD_INDEX_MXFP4
                                  ? p.cache.record
                                  : static_cast<std::int32_t>(AS_RECORD_INDEX_FP8);
  if (latent && p.hadamard != 0) {
    return check.fail("hadamard is set for LATENT rows; it belongs to index keys only");
  }
  if (!check.range("scale_floor", p.scale_floor, AS_SCALE_FLOOR_1E4, AS_SCALE_FLOOR_1E8) ||
      !check.range("fp4_rule", p.fp4_rule, AS_FP4_EVEN, AS_FP4_DOWN) ||
      !check.range("hadamard", p.hadamard, AS_HADAMARD_OFF, AS_HADAMARD_ROUNDED) ||
      !check.cache("cache", p.cache, record, dim) ||
      !check.tensor("slots", p.slots, AS_I64, {kAny}) ||
      (values && !check.slots("slots", p.slots, p.cache))) {
    return false;
  }
  const I64 tokens = p.slots.shape[0];
  if (p.rows_given != 0) return check.tensor("row", p.row, AS_BF16, {tokens, dim});
  if (!check.cache("state", p.state, AS_RECORD_STATE, 2 * coff * dim) ||
      !check.tensor("table", p.table, AS_I32, {kAny, kAny}) ||
      !check.tensor("token_to_req", p.token_to_req, AS_I32, {tokens}) ||
      !check.tensor("positions", p.positions, AS_I64, {tokens}) ||
      !check.tensor("weight", p.weight, AS_BF16, {dim}) || !check.rope(p.rope) ||
      !check.optional("row", p.row, AS_BF16, {tokens, dim})) {
    return false;
  }
  if (!values) return true;
  if (!check.requests(p.token_to_req, p.table.shape[0])) return false;
  for (I64 t = 0; t < tokens; ++t) {
    if (i64(p.slots, t) < 0) continue;
    const I64 request = i32(p.token_to_req, t), position = i64(p.positions, t);
    if (request < 0 || position < 0 || (position + 1) % p.ratio != 0) {
      return check.fail(
          "token %lld has slot %lld but request %lld, position %lld; a token emits "
          "an entry when position + 1 is divisible by %d",
          static_cast<Longs>(t), static_cast<Longs>(i64(p.slots, t)), static_cast<Longs>(request),
          static_cast<Longs>(position), p.ratio);
    }
    const I64 oldest = std::max<I64>(position + 1 - coff * p.ratio, 0);
    if (!check.rope_position(p.rope, t, position + 1 - p.ratio) ||
        !entries(p.state, p.table, t, request, oldest, position, check)) {
      return false;
    }
  }
  return true;
}

bool check_params(const as_indexer_q_params& p, bool values, Check& check) {
  const bool fp4 = p.format == AS_RECORD_INDEX_MXFP4;
  if (!fp4 && p.format != AS_RECORD_INDEX_FP8) {
    return check.fail("format is %d; allowed: INDEX_FP8 (2), INDEX_MXFP4 (3)", p.format);
  }
  if (!check.range("scale_floor", p.scale_floor, AS_SCALE_FLOOR_1E4, AS_SCALE_FLOOR_1E8) ||
      !check.range("fp4_rule", p.fp4_rule, AS_FP4_EVEN, AS_FP4_DOWN) ||
      !check.range("hadamard", p.hadamard, AS_HADAMARD_OFF, AS_HADAMARD_ROUNDED) ||
      !check.tensor("weights_raw", p.weights_raw, AS_BF16, {kAny, kAny})) {
    return false;
  }
  const I64 tokens = p.weights_raw.shape[0], heads = p.weights_raw.shape[1];
  if (!check.tensor("q", p.q, AS_U8, {tokens, heads, fp4 ? AS_INDEX_DIM / 2 : AS_INDEX_DIM}) ||
      !check.tensor("weights", p.weights, AS_F32, {tokens, heads}) ||
      (fp4 && !check.tensor("q_scale", p.q_scale, AS_U8, {tokens, heads, 4}))) {
    return false;
  }
  if (p.rows_given != 0) {
    return check.tensor("q_row", p.q_row, AS_BF16, {tokens, heads, AS_INDEX_DIM});
  }
  return check.tensor("q_raw", p.q_raw, AS_BF16, {tokens, heads, AS_INDEX_DIM}) &&
         check.tensor("positions", p.positions, AS_I64, {tokens}) && check.rope(p.rope) &&
         check.optional("q_row", p.q_row, AS_BF16, {tokens, heads, AS_INDEX_DIM}) &&
         (!values || rope_positions(p.rope, p.positions, check));
}

bool check_params(const as_indexer_logits_params& p, bool values, Check& check) {
  const bool fp4 = p.cache.record == AS_RECORD_INDEX_MXFP4;
  if (!check.cache("cache", p.cache, fp4 ? AS_RECORD_INDEX_MXFP4 : AS_RECORD_INDEX_FP8,
                   AS_INDEX_DIM) ||
      !check.tensor("weights", p.weights, AS_F32, {kAny, kAny}) ||
      !check.range("score rule", p.weights.reserved, AS_SCORES_FP32, AS_SCORES_E4M3)) {
    return false;
  }
  const I64 tokens = p.weights.shape[0], heads = p.weights.shape[1];
  if (!check.range("index heads", heads, 1, kMaxHeads) ||
      !check.tensor("q", p.q, AS_U8, {tokens, heads, fp4 ? AS_INDEX_DIM / 2 : AS_INDEX_DIM}) ||
      (fp4 && !check.tensor("q_scale", p.q_scale, AS_U8, {tokens, heads, 4})) ||
      !check.tensor("table", p.table, AS_I32, {kAny, kAny}) ||
      !check.tensor("token_to_req", p.token_to_req, AS_I32, {tokens}) ||
      !check.tensor("lens", p.lens, AS_I32, {tokens}) ||
      !check.tensor("logits", p.logits, AS_F32, {tokens, kAny})) {
    return false;
  }
  if (!values) return true;
  if (!check.requests(p.token_to_req, p.table.shape[0]) ||
      !lens_fit(p.lens, p.logits.shape[1], check)) {
    return false;
  }
  for (I64 t = 0; t < tokens; ++t) {
    const I64 len = i32(p.lens, t), request = i32(p.token_to_req, t);
    if (len == 0) continue;
    if (request < 0) {
      return check.fail("token %lld is padding but lens is %lld; it must be 0",
                        static_cast<Longs>(t), static_cast<Longs>(len));
    }
    if (!entries(p.cache, p.table, t, request, 0, len - 1, check)) return false;
  }
  return true;
}

bool check_params(const as_indexer_topk_params& p, bool values, Check& check) {
  if (!check.tensor("logits", p.logits, AS_F32, {kAny, kAny})) return false;
  const I64 tokens = p.logits.shape[0];
  return check.tensor("lens", p.lens, AS_I32, {tokens}) &&
         check.tensor("indices", p.indices, AS_I32, {tokens, kAny}) &&
         check.range("logits columns", p.logits.shape[1], 0, INT32_MAX - 1024) &&
         (!values || lens_fit(p.lens, p.logits.shape[1], check));
}

bool check_params(const as_topk_to_slots_params& p, bool values, Check& check) {
  if (!check.range("rows_per_block", p.rows_per_block, 1, INT32_MAX) ||
      !check.tensor("indices", p.indices, AS_I32, {kAny, kAny})) {
    return false;
  }
  const I64 tokens = p.indices.shape[0], width = p.indices.shape[1];
  if (!check.tensor("table", p.table, AS_I32, {kAny, kAny}) ||
      !check.tensor("token_to_req", p.token_to_req, AS_I32, {tokens}) ||
      !check.tensor("slots", p.slots, AS_I32, {tokens, width}) ||
      !check.tensor("lens", p.lens, AS_I32, {tokens})) {
    return false;
  }
  if (!values) return true;
  if (!check.requests(p.token_to_req, p.table.shape[0])) return false;
  for (I64 t = 0; t < tokens; ++t) {
    const I64 r = i32(p.token_to_req, t);
    for (I64 k = 0; k < width && r >= 0; ++k) {
      const I64 entry = i32(p.indices, t, k);
      if (entry < 0) continue;
      if (!check.block("table", p.table, t, r, entry / p.rows_per_block) ||
          !narrow_slots("table", t, i32(p.table, r, entry / p.rows_per_block), p.rows_per_block,
                        check)) {
        return false;
      }
    }
  }
  return true;
}

bool check_params(const as_sample_params& p, bool, Check& check) {
  return check.tensor("logits", p.logits, AS_F32, {kAny, kAny}) &&
         check.tensor("tokens", p.tokens, AS_I32, {p.logits.shape[0]}) &&
         check.range("logits columns", p.logits.shape[1], 0, INT32_MAX);
}

}  // namespace attnscope::cuda
