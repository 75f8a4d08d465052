#include "engine/opcase/rows_read.h"

#include <algorithm>

#include "kernels/params/attention_params.h"
#include "kernels/params/compressor_params.h"
#include "kernels/params/helper_params.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/row_access.h"
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

void all(const as_tensor& numbers, std::vector<std::int64_t>& to) {
  for (std::int64_t i = 0; i < numbers.shape[0]; ++i) to.push_back(*at<std::int64_t>(numbers, i));
}

}  // namespace

std::vector<std::int64_t> slots_touched(const CaseOp& op, const void* params, std::size_t offset) {
  const as_cache& cache = cache_at(params, offset);
  std::vector<std::int64_t> slots;
  if (const as_cache_access* access = RowAccess::find(op.id, offset)) {
    RowAccess::for_each(params, *access, [&](const RowVisit& v) { slots.push_back(v.slot); });
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
    case AS_OP_ROPE_KV_INSERT: {
      const auto& p = *static_cast<const as_rope_kv_insert_params*>(params);
      if (p.rope.table.data != nullptr) all(p.positions, rows);
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
