#include "engine/session/rows_as_read.h"

#include <algorithm>
#include <cstring>

#include "engine/model/numbers.h"
#include "kernels/layout/records.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

std::int64_t slots_of(const as_cache& cache) { return cache.data.shape[0] * cache.rows_per_block; }

// One record, payload then scales.
void copy_row(const as_cache& cache, std::int64_t slot, void* to) {
  const as_row_address from = as_cache_row(&cache, slot);
  const auto payload = to_size(as_payload_bytes(cache.record, cache.width));
  std::memcpy(to, from.payload, payload);
  if (from.scales != nullptr) {
    std::memcpy(static_cast<std::uint8_t*>(to) + payload, from.scales,
                to_size(as_scale_bytes(cache.record)));
  }
}

constexpr int kWildExponent = 127 + 20;  // biased

bool wild(std::uint32_t exponent) { return exponent >= kWildExponent && exponent < 255; }

bool any_wild_float(const std::uint8_t* bytes, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, bytes + i * 4, sizeof(bits));
    if (wild(bits >> 23 & 0xff)) return true;
  }
  return false;
}

bool wild_row(const as_cache& cache, std::int64_t slot) {
  const as_row_address row = as_cache_row(&cache, slot);
  if (cache.record == AS_RECORD_STATE) return any_wild_float(row.payload, cache.width);
  if (cache.record == AS_RECORD_INDEX_FP8) return any_wild_float(row.scales, 1);
  for (std::int64_t i = 0; i < as_scale_bytes(cache.record); ++i) {
    if (wild(row.scales[i])) return true;
  }
  if (cache.record != AS_RECORD_LATENT) return false;
  for (int i = 0; i < AS_ROPE_DIM; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, row.payload + AS_NOPE_DIM + 2 * i, sizeof(bits));
    if (wild(bits >> 7 & 0xff)) return true;
  }
  return false;
}

as_cache logical(const as_cache& cache, const as_tensor& data) {
  as_cache out = cache;
  out.addressing = AS_LOGICAL;
  out.rows_per_block = 0;
  out.data = data;
  return out;
}

}  // namespace

std::vector<std::int64_t> visible_entries(const as_indexer_logits_params& p) {
  std::vector<std::int64_t> ends(to_size(p.table.shape[0]), 0);
  for (std::int64_t t = 0; t < p.lens.shape[0]; ++t) {
    const std::int32_t request = *at<std::int32_t>(p.request_of, t);
    if (request < 0) continue;
    std::int64_t& end = ends[to_size(request)];
    end = std::max<std::int64_t>(end, *at<std::int32_t>(p.lens, t));
  }
  return ends;
}

void RowsAsRead::by_list(const as_cache& cache, const as_tensor& indices, const as_tensor& lens,
                         List& memory, as_cache* out, as_tensor* out_indices) {
  const std::int64_t tokens = indices.shape[0], width = indices.shape[1];
  const std::int64_t bytes = as_row_bytes(cache.record, cache.width);
  memory.indices.assign(to_size(tokens * width), -1);
  // A slot is one row, however many tokens list it.
  std::vector<std::int32_t> row_of(to_size(slots_of(cache)), -1);
  std::int64_t rows = 0;
  memory.rows.clear();
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t len = std::min<std::int64_t>(width, *at<std::int32_t>(lens, t));
    for (std::int64_t k = 0; k < len; ++k) {
      const std::int32_t slot = *at<std::int32_t>(indices, t, k);
      if (slot < 0 || slot >= slots_of(cache)) continue;
      std::int32_t& row = row_of[to_size(slot)];
      if (row < 0) {
        row = static_cast<std::int32_t>(rows++);
        memory.rows.resize(to_size(rows * bytes));
        copy_row(cache, slot, memory.rows.data() + row * bytes);
      }
      memory.indices[to_size(t * width + k)] = row;
      if (wild_row(cache, slot)) {
        wild_.resize(to_size(tokens));
        wild_[to_size(t)] = true;
      }
    }
  }
  memory.rows.resize(to_size(std::max<std::int64_t>(1, rows) * bytes));
  *out = logical(cache, make_tensor(memory.rows.data(), {std::max<std::int64_t>(1, rows), bytes}));
  *out_indices = make_tensor(memory.indices.data(), {tokens, width});
}

void RowsAsRead::by_table(const as_cache& cache, const as_tensor& table,
                          const as_tensor& request_of, const std::vector<std::int64_t>& ends,
                          as_cache* out, as_tensor* out_table) {
  const bool state = cache.record == AS_RECORD_STATE;
  const std::int64_t width = state ? cache.width : as_row_bytes(cache.record, cache.width);
  std::int64_t rows = 0;
  table_.clear();
  for (const std::int64_t end : ends) {
    table_.push_back(static_cast<std::int32_t>(rows));
    rows += end;
  }
  rows = std::max<std::int64_t>(1, rows);
  if (state) {
    state_.assign(to_size(rows * width), 0);
  } else {
    rows_.assign(to_size(rows * width), 0);
  }
  for (std::size_t r = 0; r < ends.size(); ++r) {
    bool wild_request = false;
    for (std::int64_t p = 0; p < ends[r]; ++p) {
      const std::int64_t column = p / cache.rows_per_block;
      if (column >= table.shape[1]) break;
      const std::int64_t block = *at<std::int32_t>(table, static_cast<std::int64_t>(r), column);
      const std::int64_t slot = block * cache.rows_per_block + p % cache.rows_per_block;
      if (slot < 0 || slot >= slots_of(cache)) continue;
      const std::int64_t to = (table_[r] + p) * width;
      copy_row(
          cache, slot,
          state ? static_cast<void*>(state_.data() + to) : static_cast<void*>(rows_.data() + to));
      wild_request = wild_request || wild_row(cache, slot);
    }
    if (!wild_request) continue;
    wild_.resize(to_size(request_of.shape[0]));
    for (std::int64_t t = 0; t < request_of.shape[0]; ++t) {
      if (*at<std::int32_t>(request_of, t) == static_cast<std::int32_t>(r))
        wild_[to_size(t)] = true;
    }
  }
  *out = logical(cache, state ? make_tensor(state_.data(), {rows, width})
                              : make_tensor(rows_.data(), {rows, width}));
  *out_table = make_tensor(table_.data(), {static_cast<std::int64_t>(ends.size()), 1});
}

void RowsAsRead::replace(const OpParams& engine, OpParams& copy) {
  wild_.clear();
  switch (engine.op()) {
    case AS_OP_SPARSE_ATTENTION: {
      const auto& p = engine.get<as_sparse_attention_params>();
      auto& to = copy.get<as_sparse_attention_params>();
      by_list(p.cache, p.indices, p.lens, window_, &to.cache, &to.indices);
      if (present(p.extra_indices)) {
        by_list(p.extra_cache, p.extra_indices, p.extra_lens, extra_, &to.extra_cache,
                &to.extra_indices);
      }
      break;
    }
    case AS_OP_COMPRESS_INSERT:
    case AS_OP_INDEXER_COMPRESS_INSERT: {
      const auto& p = engine.get<as_compress_insert_params>();
      auto& to = copy.get<as_compress_insert_params>();
      std::vector<std::int64_t> ends(to_size(p.table.shape[0]), 0);
      for (std::int64_t t = 0; t < p.slots.shape[0]; ++t) {
        if (*at<std::int64_t>(p.slots, t) < 0) continue;
        std::int64_t& end = ends[to_size(*at<std::int32_t>(p.request_of, t))];
        end = std::max(end, *at<std::int64_t>(p.positions, t) + 1);
      }
      by_table(p.state, p.table, p.request_of, ends, &to.state, &to.table);
      break;
    }
    case AS_OP_INDEXER_LOGITS: {
      const auto& p = engine.get<as_indexer_logits_params>();
      auto& to = copy.get<as_indexer_logits_params>();
      by_table(p.cache, p.table, p.request_of, visible_entries(p), &to.cache, &to.table);
      break;
    }
    default:
      break;
  }
}

}  // namespace attnscope
