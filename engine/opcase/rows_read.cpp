#include "engine/opcase/rows_read.h"

#include <algorithm>

#include "kernels/params/attention_params.h"
#include "kernels/params/compressor_params.h"
#include "kernels/params/helper_params.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Distinct numbers within [0, end).
std::vector<std::int64_t> tidy(std::vector<std::int64_t> numbers, std::int64_t end) {
  std::erase_if(numbers, [end](std::int64_t n) { return n < 0 || n >= end; });
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

void list(const as_tensor& indices, const as_tensor& lens, std::vector<std::int64_t>& slots) {
  if (!present(indices)) return;
  for (std::int64_t t = 0; t < indices.shape[0]; ++t) {
    const std::int64_t len = std::min<std::int64_t>(indices.shape[1], *at<std::int32_t>(lens, t));
    for (std::int64_t k = 0; k < len; ++k) slots.push_back(*at<std::int32_t>(indices, t, k));
  }
}

// Positions first .. last of a request, through its table row.
void table_rows(const as_tensor& table, std::int64_t request, std::int64_t first, std::int64_t last,
                std::int64_t rows_per_block, std::vector<std::int64_t>& slots) {
  if (request < 0 || request >= table.shape[0]) return;
  for (std::int64_t p = std::max<std::int64_t>(0, first); p <= last; ++p) {
    const std::int64_t column = p / rows_per_block;
    if (column >= table.shape[1]) return;
    const std::int64_t block = *at<std::int32_t>(table, request, column);
    slots.push_back(block * rows_per_block + p % rows_per_block);
  }
}

std::int64_t compressor_rows(std::int32_t ratio) { return ratio == 4 ? 8 : ratio; }

void pooled(const as_compress_insert_params& p, std::vector<std::int64_t>& slots) {
  if (p.rows_given != 0) return;
  for (std::int64_t t = 0; t < p.slots.shape[0]; ++t) {
    if (*at<std::int64_t>(p.slots, t) < 0) continue;
    const std::int64_t position = *at<std::int64_t>(p.positions, t);
    table_rows(p.table, *at<std::int32_t>(p.request_of, t), position - compressor_rows(p.ratio) + 1,
               position, p.state.rows_per_block, slots);
  }
}

void scored(const as_indexer_logits_params& p, std::vector<std::int64_t>& slots) {
  std::vector<std::int64_t> ends(static_cast<std::size_t>(p.table.shape[0]), 0);
  for (std::int64_t t = 0; t < p.lens.shape[0]; ++t) {
    const std::int64_t request = *at<std::int32_t>(p.request_of, t);
    if (request < 0 || request >= p.table.shape[0]) continue;
    std::int64_t& end = ends[static_cast<std::size_t>(request)];
    end = std::max<std::int64_t>(end, *at<std::int32_t>(p.lens, t));
  }
  for (std::size_t r = 0; r < ends.size(); ++r) {
    table_rows(p.table, static_cast<std::int64_t>(r), 0, ends[r] - 1, p.cache.rows_per_block,
               slots);
  }
}

void all(const as_tensor& numbers, std::vector<std::int64_t>& to) {
  for (std::int64_t i = 0; i < numbers.shape[0]; ++i) to.push_back(*at<std::int64_t>(numbers, i));
}

}  // namespace

std::vector<std::int64_t> slots_read(const CaseOp& op, const void* params, std::size_t offset) {
  const as_cache& cache = cache_at(params, offset);
  std::vector<std::int64_t> slots;
  switch (op.id) {
    case AS_OP_SPARSE_ATTENTION: {
      const auto& p = *static_cast<const as_sparse_attention_params*>(params);
      if (offset == offsetof(as_sparse_attention_params, cache)) {
        list(p.indices, p.lens, slots);
      } else {
        list(p.extra_indices, p.extra_lens, slots);
      }
      break;
    }
    case AS_OP_COMPRESS_INSERT:
    case AS_OP_INDEXER_COMPRESS_INSERT:
      pooled(*static_cast<const as_compress_insert_params*>(params), slots);
      break;
    case AS_OP_INDEXER_LOGITS:
      scored(*static_cast<const as_indexer_logits_params*>(params), slots);
      break;
    case AS_OP_GATHER_ROWS:
      all(static_cast<const as_gather_rows_params*>(params)->slots, slots);
      break;
    default:
      break;
  }
  return tidy(std::move(slots), cache.data.shape[0] * cache.rows_per_block);
}

std::vector<std::int64_t> rope_rows_read(const CaseOp& op, const void* params) {
  std::vector<std::int64_t> rows;
  const as_rope* rope = nullptr;
  switch (op.id) {
    case AS_OP_Q_ROPE_KV_INSERT: {
      const auto& p = *static_cast<const as_q_rope_kv_insert_params*>(params);
      all(p.positions, rows);
      rope = &p.rope;
      break;
    }
    case AS_OP_COMPRESS_INSERT:
    case AS_OP_INDEXER_COMPRESS_INSERT: {
      const auto& p = *static_cast<const as_compress_insert_params*>(params);
      for (std::int64_t t = 0; t < p.slots.shape[0]; ++t) {
        if (*at<std::int64_t>(p.slots, t) < 0) continue;
        rows.push_back(*at<std::int64_t>(p.positions, t) + 1 - p.ratio);
      }
      rope = &p.rope;
      break;
    }
    case AS_OP_INDEXER_Q: {
      const auto& p = *static_cast<const as_indexer_q_params*>(params);
      all(p.positions, rows);
      rope = &p.rope;
      break;
    }
    case AS_OP_INVERSE_ROPE: {
      const auto& p = *static_cast<const as_inverse_rope_params*>(params);
      all(p.positions, rows);
      rope = &p.rope;
      break;
    }
    case AS_OP_INVERSE_ROPE_QUANTISE: {
      const auto& p = *static_cast<const as_inverse_rope_quantise_params*>(params);
      all(p.positions, rows);
      rope = &p.rope;
      break;
    }
    default:
      return {};
  }
  return tidy(std::move(rows), rope->table.shape[0]);
}

}  // namespace attnscope
