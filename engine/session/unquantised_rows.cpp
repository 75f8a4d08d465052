#include "engine/session/unquantised_rows.h"

#include <algorithm>

#include "engine/model/numbers.h"
#include "engine/session/forced_copy.h"
#include "engine/session/place.h"
#include "engine/session/rows_as_read.h"
#include "engine/trace/compare.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

as_cache logical(const as_cache& cache, std::vector<double>& values) {
  as_cache out = cache;
  out.addressing = AS_LOGICAL;
  out.rows_per_block = 0;
  if (values.empty()) values.resize(to_size(cache.width));
  out.data = make_tensor(values.data(), {static_cast<std::int64_t>(values.size()) / cache.width,
                                         static_cast<std::int64_t>(cache.width)});
  return out;
}

}  // namespace

void UnquantisedRows::op_done(const Session& session) {
  if (last_place(session).layer != layer_) return;
  const OpParams& params = session.last_params();
  std::size_t row_offset = 0, cache_offset = 0;
  as_tensor slots{};
  if (params.op() == AS_OP_Q_ROPE_KV_INSERT) {
    row_offset = offsetof(as_q_rope_kv_insert_params, kv_row);
    cache_offset = offsetof(as_q_rope_kv_insert_params, cache);
    slots = params.get<as_q_rope_kv_insert_params>().slots;
  } else if (params.op() == AS_OP_COMPRESS_INSERT || params.op() == AS_OP_INDEXER_COMPRESS_INSERT) {
    row_offset = offsetof(as_compress_insert_params, row);
    cache_offset = offsetof(as_compress_insert_params, cache);
    slots = params.get<as_compress_insert_params>().slots;
  } else {
    return;
  }
  const as_tensor& rows = params.tensor(row_offset);
  if (!present(rows)) return;  // the lane keeps its row to itself
  Rows& kept = rows_[to_size(static_cast<int>(cache_kind(params.op(), cache_offset)))];
  for (std::int64_t t = 0; t < slots.shape[0]; ++t) {
    const std::int64_t slot = *at<std::int64_t>(slots, t);
    if (slot < 0) continue;
    std::vector<double>& row = kept[slot];
    row.resize(to_size(rows.shape[1]));
    for (std::int64_t k = 0; k < rows.shape[1]; ++k) row[to_size(k)] = element(rows, t, k);
  }
}

bool UnquantisedRows::by_list(const Rows& rows, const as_cache& cache, const as_tensor& indices,
                              const as_tensor& lens, List& memory, as_cache* out,
                              as_tensor* out_indices) {
  const std::int64_t tokens = indices.shape[0], width = indices.shape[1];
  memory.indices.assign(to_size(tokens * width), -1);
  memory.values.clear();
  std::unordered_map<std::int64_t, std::int32_t> place;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t len = std::min<std::int64_t>(width, *at<std::int32_t>(lens, t));
    for (std::int64_t k = 0; k < len; ++k) {
      const std::int32_t slot = *at<std::int32_t>(indices, t, k);
      if (slot < 0) continue;
      const auto row = rows.find(slot);
      if (row == rows.end()) return false;
      const auto [at_row, fresh] = place.try_emplace(slot, static_cast<std::int32_t>(place.size()));
      if (fresh) {
        memory.values.insert(memory.values.end(), row->second.begin(), row->second.end());
      }
      memory.indices[to_size(t * width + k)] = at_row->second;
    }
  }
  *out = logical(cache, memory.values);
  *out_indices = make_tensor(memory.indices.data(), {tokens, width});
  return true;
}

// Entries 0 .. of every request, one request behind the other.
bool UnquantisedRows::by_table(const OpParams& engine, OpParams& copy) {
  const auto& p = engine.get<as_indexer_logits_params>();
  const Rows& rows = rows_[to_size(static_cast<int>(CacheKind::kIndex))];
  const std::vector<std::int64_t> ends = visible_entries(p);
  window_.values.clear();
  window_.indices.clear();
  for (std::size_t r = 0; r < ends.size(); ++r) {
    window_.indices.push_back(
        static_cast<std::int32_t>(window_.values.size() / to_size(p.cache.width)));
    for (std::int64_t c = 0; c < ends[r]; ++c) {
      const std::int64_t column = c / p.cache.rows_per_block;
      if (column >= p.table.shape[1]) return false;
      const std::int64_t block = *at<std::int32_t>(p.table, static_cast<std::int64_t>(r), column);
      const auto row = rows.find(block * p.cache.rows_per_block + c % p.cache.rows_per_block);
      if (row == rows.end()) return false;
      window_.values.insert(window_.values.end(), row->second.begin(), row->second.end());
    }
  }
  auto& to = copy.get<as_indexer_logits_params>();
  to.cache = logical(p.cache, window_.values);
  to.table =
      make_tensor(window_.indices.data(), {static_cast<std::int64_t>(window_.indices.size()), 1});
  return true;
}

bool UnquantisedRows::replace(const OpParams& engine, OpParams& copy) {
  if (engine.op() == AS_OP_INDEXER_LOGITS) return by_table(engine, copy);
  if (engine.op() != AS_OP_SPARSE_ATTENTION) return false;
  const auto& p = engine.get<as_sparse_attention_params>();
  auto& to = copy.get<as_sparse_attention_params>();
  const auto rows_of = [&](CacheKind kind) -> const Rows& {
    return rows_[to_size(static_cast<int>(kind))];
  };
  if (!by_list(rows_of(CacheKind::kSwa), p.cache, p.indices, p.lens, window_, &to.cache,
               &to.indices)) {
    return false;
  }
  return !present(p.extra_indices) ||
         by_list(rows_of(CacheKind::kMain), p.extra_cache, p.extra_indices, p.extra_lens, extra_,
                 &to.extra_cache, &to.extra_indices);
}

}  // namespace attnscope
