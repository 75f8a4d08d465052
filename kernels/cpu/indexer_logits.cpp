// indexer_logits: the score of every entry that a token sees.
//
// Keys are decoded in tiles, once for a run of neighbouring tokens of a request, and multiplied
// with all heads of all tokens of the run.
#include <algorithm>
#include <vector>

#include "kernels/cpu/codec.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/layout/records.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

using Params = as_indexer_logits_params;

constexpr std::int64_t kTile = 64;        // keys decoded at once
constexpr std::int64_t kKeyChunk = 1024;  // keys of one work item
constexpr std::int64_t kMaxRun = 8;       // tokens of one work item
constexpr std::int64_t kMaxHeads = 512;   // heads x tokens of one work item

// Tokens [first, first + count) of one request against entries [key_begin, key_end).
struct Item {
  std::int64_t first;
  std::int64_t count;
  std::int64_t key_begin;
  std::int64_t key_end;
};

std::int64_t slot_of(const Params& p, std::int64_t request, std::int64_t entry) {
  if (p.cache.addressing == AS_LOGICAL) return *at<std::int32_t>(p.table, request) + entry;
  const std::int64_t rows = p.cache.rows_per_block;
  return *at<std::int32_t>(p.table, request, entry / rows) * rows + entry % rows;
}

bool check_token(const Params& p, std::int64_t t, Check& check) {
  const std::int64_t len = *at<std::int32_t>(p.lens, t);
  const std::int64_t request = *at<std::int32_t>(p.token_to_req, t);
  if (len < 0 || len > p.logits.shape[1]) {
    return check.fail("lens[%lld] is %lld; a row of logits has 0 to %lld columns",
                      static_cast<long long>(t), static_cast<long long>(len),
                      static_cast<long long>(p.logits.shape[1]));
  }
  if (len == 0) return true;
  if (request < 0) {
    return check.fail("token %lld is padding but lens is %lld; it must be 0",
                      static_cast<long long>(t), static_cast<long long>(len));
  }
  const bool paged = p.cache.addressing == AS_PAGED;
  const std::int64_t rows = paged ? p.cache.rows_per_block : len;
  for (std::int64_t entry = 0; entry < len; entry += rows) {
    if (!check.block("table", p.table, t, request, paged ? entry / rows : 0)) return false;
    const std::int64_t last = slot_of(p, request, std::min(entry + rows, len) - 1);
    if (last >= cache_rows(p.cache)) {
      return check.fail(
          "token %lld: entry %lld lies in slot %lld; the cache has rows 0 to %lld",
          static_cast<long long>(t), static_cast<long long>(std::min(entry + rows, len) - 1),
          static_cast<long long>(last), static_cast<long long>(cache_rows(p.cache) - 1));
    }
  }
  return true;
}

bool check_params(const Params& p, Check& check) {
  const bool fp4 = p.cache.record == AS_RECORD_INDEX_MXFP4;
  const std::int32_t record = fp4 ? AS_RECORD_INDEX_MXFP4 : AS_RECORD_INDEX_FP8;
  if (!check.cache("cache", p.cache, record, AS_INDEX_DIM) ||
      !check.tensor("weights", p.weights, AS_F32, {kAny, kAny}) ||
      !check.range("score rule", p.weights.reserved, AS_SCORES_FP32, AS_SCORES_E4M3)) {
    return false;
  }
  const std::int64_t tokens = p.weights.shape[0];
  const std::int64_t heads = p.weights.shape[1];
  if (!check.range("index heads", heads, 1, kMaxHeads) ||
      !check.tensor("q", p.q, AS_U8, {tokens, heads, fp4 ? AS_INDEX_DIM / 2 : AS_INDEX_DIM}) ||
      (fp4 && !check.tensor("q_scale", p.q_scale, AS_U8, {tokens, heads, 4})) ||
      !check.tensor("table", p.table, AS_I32, {kAny, kAny}) ||
      !check.tensor("token_to_req", p.token_to_req, AS_I32, {tokens}) ||
      !check.tensor("lens", p.lens, AS_I32, {tokens}) ||
      !check.tensor("logits", p.logits, AS_F32, {tokens, kAny}) ||
      !check.requests(p.token_to_req, p.table.shape[0])) {
    return false;
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (!check_token(p, t, check)) return false;
  }
  return true;
}

std::vector<Item> make_items(const Params& p) {
  const std::int64_t tokens = p.weights.shape[0];
  const std::int64_t run = std::clamp<std::int64_t>(kMaxHeads / p.weights.shape[1], 1, kMaxRun);
  std::vector<Item> items;
  for (std::int64_t t = 0; t < tokens;) {
    const std::int32_t request = *at<std::int32_t>(p.token_to_req, t);
    std::int64_t keys = 0;
    std::int64_t end = t;
    while (end < tokens && end < t + run && *at<std::int32_t>(p.token_to_req, end) == request) {
      keys = std::max<std::int64_t>(keys, *at<std::int32_t>(p.lens, end++));
    }
    for (std::int64_t key = 0; key < keys; key += kKeyChunk) {
      items.push_back({t, end - t, key, std::min(keys, key + kKeyChunk)});
    }
    t = end;
  }
  return items;
}

// Values of a query or key as they enter the dot product: MXFP4 with its block scales, FP8 raw.
void decode(std::int32_t record, const unsigned char* codes, const unsigned char* scales,
            float* out) {
  if (record == AS_RECORD_INDEX_FP8) {
    simd::kernels().decode_e4m3(codes, 1.0f, AS_INDEX_DIM, out);
  } else {
    decode_row(record, AS_INDEX_DIM, codes, scales, out);
  }
}

// Keys [begin, begin + count) as columns of keys[dim][kTile], with their scales; zeros behind them.
// Those of the next tile, before `end`, come into the cache meanwhile.
void load_keys(const Params& p, std::int64_t request, std::int64_t begin, std::int64_t count,
               std::int64_t end, float* keys, float* key_scales) {
  static constexpr unsigned char kZeros[AS_INDEX_DIM] = {};
  const unsigned char* codes[kTile];
  const bool fp8 = p.cache.record == AS_RECORD_INDEX_FP8;
  for (std::int64_t c = 0; c < kTile; ++c) {
    codes[c] = kZeros;
    key_scales[c] = 1.0f;
    float key[AS_INDEX_DIM] = {};
    if (begin + kTile + c < end) {
      const as_row_address next = as_cache_row(&p.cache, slot_of(p, request, begin + kTile + c));
      __builtin_prefetch(next.payload, 0, 2);
      __builtin_prefetch(next.payload + AS_INDEX_DIM / 2, 0, 2);
    }
    if (c < count) {
      const as_row_address row = as_cache_row(&p.cache, slot_of(p, request, begin + c));
      codes[c] = row.payload;
      if (fp8) {
        std::memcpy(&key_scales[c], row.scales, 4);
      } else {
        decode(p.cache.record, row.payload, row.scales, key);
      }
    }
    for (int d = 0; !fp8 && d < AS_INDEX_DIM; ++d) keys[d * kTile + c] = key[d];
  }
  if (fp8) simd::kernels().decode_e4m3_columns(codes, kTile, AS_INDEX_DIM, keys, kTile);
}

void score(const Params& p, const Item& item) {
  const simd::Kernels& simd = simd::kernels();
  const std::int64_t heads = p.weights.shape[1];
  const std::int64_t request = *at<std::int32_t>(p.token_to_req, item.first);
  alignas(64) float queries[kMaxHeads * AS_INDEX_DIM];
  alignas(64) float keys[AS_INDEX_DIM * kTile];
  alignas(64) float dots[kMaxHeads * kTile];
  float key_scales[kTile];
  for (std::int64_t i = 0; i < item.count; ++i) {
    for (std::int64_t j = 0; j < heads; ++j) {
      const auto* scales = p.cache.record == AS_RECORD_INDEX_MXFP4
                               ? at<unsigned char>(p.q_scale, item.first + i, j)
                               : nullptr;
      decode(p.cache.record, at<unsigned char>(p.q, item.first + i, j), scales,
             queries + (i * heads + j) * AS_INDEX_DIM);
    }
  }
  for (std::int64_t begin = item.key_begin; begin < item.key_end; begin += kTile) {
    const std::int64_t count = std::min(kTile, item.key_end - begin);
    load_keys(p, request, begin, count, item.key_end, keys, key_scales);
    for (std::int64_t i = 0; i < item.count; ++i) {
      const std::int64_t t = item.first + i;
      const std::int64_t visible =
          std::min<std::int64_t>(*at<std::int32_t>(p.lens, t) - begin, count);
      if (visible <= 0) continue;
      std::fill(dots, dots + heads * kTile, 0.0f);
      simd.gemm_add(queries + i * heads * AS_INDEX_DIM, AS_INDEX_DIM, heads, keys, kTile,
                    AS_INDEX_DIM, dots, kTile, kTile);
      simd.relu_weighted_sum(dots, kTile, at<float>(p.weights, t), static_cast<int>(heads),
                             key_scales, visible, at<float>(p.logits, t) + begin);
    }
  }
}

// AS_SCORES_BF16, in float64: dot products of these formats and sums of bf16 numbers are exact
// there, so that each result is rounded once.
void score_rounded(const Params& p, const Item& item) {
  const std::int64_t heads = p.weights.shape[1];
  const std::int64_t request = *at<std::int32_t>(p.token_to_req, item.first);
  float keys[AS_INDEX_DIM * kTile], key_scales[kTile], query[AS_INDEX_DIM];
  double sums[kTile];
  for (std::int64_t begin = item.key_begin; begin < item.key_end; begin += kTile) {
    const std::int64_t count = std::min(kTile, item.key_end - begin);
    load_keys(p, request, begin, count, item.key_end, keys, key_scales);
    for (std::int64_t t = item.first; t < item.first + item.count; ++t) {
      const std::int64_t visible =
          std::min<std::int64_t>(*at<std::int32_t>(p.lens, t) - begin, count);
      std::fill_n(sums, kTile, 0.0);
      for (std::int64_t j = 0; visible > 0 && j < heads; ++j) {
        const auto* scales =
            p.cache.record == AS_RECORD_INDEX_MXFP4 ? at<unsigned char>(p.q_scale, t, j) : nullptr;
        decode(p.cache.record, at<unsigned char>(p.q, t, j), scales, query);
        const float weight = round_bf16(*at<float>(p.weights, t, j));
        for (std::int64_t c = 0; c < visible; ++c) {
          double dot = 0.0;
          for (int d = 0; d < AS_INDEX_DIM; ++d) {
            dot += static_cast<double>(query[d]) * static_cast<double>(keys[d * kTile + c]);
          }
          const float rounded = round_bf16(dot);
          const float positive = rounded < 0.0f ? 0.0f : rounded;  // NaN stays
          sums[c] += static_cast<double>(round_bf16(positive * weight));
        }
      }
      for (std::int64_t c = 0; c < visible; ++c) {
        at<float>(p.logits, t)[begin + c] = round_bf16(sums[c]) * key_scales[c];
      }
    }
  }
}

}  // namespace

void indexer_logits(const Params& p, const as_call* call, Check& check) {
  if (!check_params(p, check)) return;
  const std::vector<Item> items = make_items(p);
  const bool rounded = p.weights.reserved == AS_SCORES_BF16;
  parallel_for(call, static_cast<std::int64_t>(items.size()), 1,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) {
                   const Item& item = items[static_cast<std::size_t>(i)];
                   rounded ? score_rounded(p, item) : score(p, item);
                 }
               });
}

}  // namespace attnscope::cpu
