// Wrong index lists and scores.
#include "kernels/cpu/codec.h"
#include "kernels/layout/records.h"
#include "kernels/mutants/bugs.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/step_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::mutants {

// A window of W - 1 written into rows of W.
std::int32_t window_off_by_one(const void* params, const as_call* call, as_error* error) {
  if (!readable<as_swa_index_params>(params)) {
    return run_cpu(AS_OP_SWA_INDEX, params, call, error);
  }
  const auto& p = *static_cast<const as_swa_index_params*>(params);
  const std::int32_t status = run_cpu(AS_OP_SWA_INDEX, params, call, error);
  if (status != AS_OK || p.window < 2) return status;
  as_swa_index_params late = p;
  late.window -= 1;
  late.indices.shape[2] -= 1;
  for (std::int64_t s = 0; s < p.indices.shape[0]; ++s) {
    for (std::int64_t t = 0; t < p.indices.shape[1]; ++t) {
      *at<std::int32_t>(p.indices, s, t, p.window - 1) = -1;
    }
  }
  return run_cpu(AS_OP_SWA_INDEX, &late, call, error);
}

std::int32_t topk_one_short(const void* params, const as_call* call, as_error* error) {
  const std::int32_t status = run_cpu(AS_OP_INDEXER_TOPK, params, call, error);
  if (status != AS_OK) return status;
  const auto& p = *static_cast<const as_indexer_topk_params*>(params);
  for (std::int64_t t = 0; t < p.indices.shape[0]; ++t) {
    std::int32_t* row = at<std::int32_t>(p.indices, t);
    for (std::int64_t k = p.indices.shape[1] - 1; k >= 0; --k) {
      if (row[k] < 0) continue;
      row[k] = -1;
      break;
    }
  }
  return status;
}

// Without the ReLU the score is linear: the weighted sum of the heads' queries times the key.
std::int32_t relu_missing(const void* params, const as_call* call, as_error* error) {
  const std::int32_t status = run_cpu(AS_OP_INDEXER_LOGITS, params, call, error);
  if (status != AS_OK) return status;
  const auto& p = *static_cast<const as_indexer_logits_params*>(params);
  const std::int32_t record = p.cache.record;
  const float unit = 1.0f;
  const auto* unit_scale = reinterpret_cast<const unsigned char*>(&unit);
  for (std::int64_t t = 0; t < p.lens.shape[0]; ++t) {
    double query[AS_INDEX_DIM] = {};
    float row[AS_INDEX_DIM];
    for (std::int64_t j = 0; j < p.weights.shape[1]; ++j) {
      const unsigned char* scales =
          record == AS_RECORD_INDEX_MXFP4 ? at<unsigned char>(p.q_scale, t, j) : unit_scale;
      cpu::decode_row(record, AS_INDEX_DIM, at<unsigned char>(p.q, t, j), scales, row);
      const double weight = static_cast<double>(*at<float>(p.weights, t, j));
      for (int d = 0; d < AS_INDEX_DIM; ++d) query[d] += weight * static_cast<double>(row[d]);
    }
    const std::int32_t request = *at<std::int32_t>(p.request_of, t);
    const bool paged = p.cache.addressing == AS_PAGED;
    for (std::int64_t c = 0; c < *at<std::int32_t>(p.lens, t); ++c) {
      const std::int64_t rows = p.cache.rows_per_block;
      const std::int64_t slot =
          paged ? *at<std::int32_t>(p.table, request, c / rows) * rows + c % rows
                : *at<std::int32_t>(p.table, request) + c;
      const as_row_address key = as_cache_row(&p.cache, slot);
      cpu::decode_row(record, AS_INDEX_DIM, key.payload, key.scales, row);
      double score = 0.0;
      for (int d = 0; d < AS_INDEX_DIM; ++d) score += query[d] * static_cast<double>(row[d]);
      *at<float>(p.logits, t, c) = static_cast<float>(score);
    }
  }
  return status;
}

}  // namespace attnscope::mutants
