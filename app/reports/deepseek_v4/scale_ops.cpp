#include "app/reports/deepseek_v4/scale_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "engine/family/deepseek_v4/caches.h"
#include "engine/family/models.h"
#include "engine/model/numbers.h"
#include "kernels/layout/records.h"

namespace attnscope {
namespace {

// What all of them ask for.
struct Sizes {
  ModelConfig config;
  CacheLayout layout;
  std::int64_t requests = 1;

  // Of the first layer with this ratio.
  const CacheSpec& cache(int ratio, CacheId id) const {
    int layer = 0;
    while (config.ratio(layer) != ratio) ++layer;
    return *layout.find(layer, id);
  }
};
using Shared = std::shared_ptr<const Sizes>;

// Pages of one cache for `rows` rows of each of so many requests, and the slots of their rows.
struct Paged {
  as_cache cache;
  std::vector<std::int32_t> tables;  // [requests, columns]
  std::int64_t columns = 0;

  std::int32_t slot(std::int64_t request, std::int64_t row) const {
    const std::int64_t rows = cache.rows_per_block;
    const std::int32_t page = tables[to_size(request * columns + row / rows)];
    return static_cast<std::int32_t>(page * rows + row % rows);
  }
};

Paged paged(ScaleInputs& in, const CacheSpec& spec, std::int64_t requests, std::int64_t rows) {
  Paged p;
  p.columns = ceil_div(rows, spec.rows_per_block);
  p.cache = in.cache(spec, requests * p.columns);
  p.tables = in.tables(requests, p.columns);
  return p;
}

std::vector<OpParams> attention(const Sizes& s, int ratio, ScaleInputs& in, std::int64_t context,
                                int calls) {
  const CacheSpec& main = s.cache(ratio, kMainCache);
  const CacheSpec& swa = s.cache(ratio, kSwaCache);
  const std::int64_t heads = s.config.heads, dim = s.config.head_dim, n = s.requests;
  // The window of the last token, and the pages that it lies in.
  const std::int64_t window = std::min<std::int64_t>(s.config.window, context);
  const std::int64_t first = (context - window) % swa.rows_per_block;
  const Paged recent = paged(in, swa, n * calls, first + window);
  // Entries: a selection of them, or all; the list of all has room as engines leave it.
  const bool selects = ratio == 4;
  const std::int64_t entries = context / ratio;
  const std::int64_t read =
      selects ? std::min<std::int64_t>(s.config.index_topk, entries) : entries;
  const std::int64_t width =
      selects ? s.config.index_topk : as_c128_index_width(context, s.config.max_position);
  const Paged older = paged(in, main, n * calls, entries);
  const as_tensor sinks = in.numbers(AS_F32, {heads});
  std::vector<OpParams> out;
  for (int call = 0; call < calls; ++call) {
    std::vector<std::int32_t> indices, extra;
    for (std::int64_t r = call * n; r < (call + 1) * n; ++r) {
      for (std::int64_t i = 0; i < window; ++i) indices.push_back(recent.slot(r, first + i));
      for (const std::int32_t entry : in.chosen(read, entries)) {
        extra.push_back(older.slot(r, entry));
      }
      extra.insert(extra.end(), to_size(width - read), -1);
    }
    OpParams params;
    auto& p = params.init<as_sparse_attention_params>(AS_OP_SPARSE_ATTENTION);
    p.q = in.numbers(AS_BF16, {n, heads, dim});
    p.cache = recent.cache;
    p.indices = in.upload(indices, {n, window});
    p.topk_length = in.same(static_cast<std::int32_t>(window), n);
    p.extra_cache = older.cache;
    p.extra_indices = in.upload(extra, {n, width});
    p.extra_topk_length = in.same(static_cast<std::int32_t>(read), n);
    p.sinks = sinks;
    p.o = in.make(AS_BF16, {n, heads, dim});
    p.lse = in.make(AS_F32, {n, heads});
    p.scale = 1 / std::sqrt(static_cast<double>(dim));
    out.push_back(params);
  }
  return out;
}

std::vector<OpParams> logits(const Sizes& s, ScaleInputs& in, std::int64_t context, int calls) {
  const CacheSpec& index = s.cache(4, kIndexCache);
  const std::int64_t heads = s.config.index_heads, n = s.requests;
  const std::int64_t keys = context / index.tokens_per_row;
  const Paged held = paged(in, index, n * calls, keys);
  std::vector<std::int32_t> token_to_req(to_size(n));
  for (std::int64_t r = 0; r < n; ++r) token_to_req[to_size(r)] = static_cast<std::int32_t>(r);
  std::vector<OpParams> out;
  for (int call = 0; call < calls; ++call) {
    OpParams params;
    auto& p = params.init<as_indexer_logits_params>(AS_OP_INDEXER_LOGITS);
    p.q = in.codes({n, heads, s.config.index_dim});
    p.weights = in.numbers(AS_F32, {n, heads});
    p.cache = held.cache;
    const auto begin = held.tables.begin() + call * n * held.columns;
    p.table =
        in.upload(std::vector<std::int32_t>(begin, begin + n * held.columns), {n, held.columns});
    p.token_to_req = in.upload(token_to_req, {n});
    p.lens = in.same(static_cast<std::int32_t>(keys), n);
    p.logits = in.make(AS_F32, {n, keys});
    out.push_back(params);
  }
  return out;
}

std::vector<OpParams> topk(const Sizes& s, ScaleInputs& in, std::int64_t context, int calls) {
  const std::int64_t n = s.requests, columns = context / 4;
  std::vector<OpParams> out;
  for (int call = 0; call < calls; ++call) {
    OpParams params;
    auto& p = params.init<as_indexer_topk_params>(AS_OP_INDEXER_TOPK);
    p.logits = in.numbers(AS_F32, {n, columns});
    p.lens = in.same(static_cast<std::int32_t>(columns), n);
    p.indices = in.make(AS_I32, {n, s.config.index_topk});
    out.push_back(params);
  }
  return out;
}

ScaleLine line(std::string name, std::string variant, std::string unit, std::string reads) {
  ScaleLine l;
  l.name = std::move(name);
  l.variant = std::move(variant);
  l.unit = std::move(unit);
  l.reads = std::move(reads);
  return l;
}

}  // namespace

std::vector<ScaleOp> deepseek_v4_scale_ops(const ModelConfig& config, std::int64_t requests) {
  const Shared s =
      std::make_shared<const Sizes>(Sizes{config, build_cache_layout(config), requests});
  const std::int64_t window = config.window, k = config.index_topk;
  std::vector<ScaleOp> ops(4);
  ops[0] = {AS_OP_SPARSE_ATTENTION,
            line("sparse_attention", "C4A", "row",
                 fmt::format("{} + min({}, context / 4) rows", window, k)),
            [=](std::int64_t context) { return window + std::min(k, context / 4); },
            [s](ScaleInputs& in, std::int64_t context, int calls) {
              return attention(*s, 4, in, context, calls);
            }};
  ops[0].line.flat = true;
  ops[1] = {
      AS_OP_SPARSE_ATTENTION,
      line("sparse_attention", "C128A", "row", fmt::format("{} + context / 128 rows", window)),
      [=](std::int64_t context) { return window + context / 128; },
      [s](ScaleInputs& in, std::int64_t context, int calls) {
        return attention(*s, 128, in, context, calls);
      }};
  const auto entries = [](std::int64_t context) { return context / 4; };
  ops[2] = {AS_OP_INDEXER_LOGITS, line("indexer_logits", "", "key", "context / 4 FP8 keys"),
            entries, [s](ScaleInputs& in, std::int64_t context, int calls) {
              return logits(*s, in, context, calls);
            }};
  ops[3] = {AS_OP_INDEXER_TOPK,
            line("indexer_topk", "", "logit", fmt::format("the {} best of context / 4 logits", k)),
            entries, [s](ScaleInputs& in, std::int64_t context, int calls) {
              return topk(*s, in, context, calls);
            }};
  return ops;
}

}  // namespace attnscope
