// Wrong latent rows and wrong attention.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/codec.h"
#include "kernels/layout/records.h"
#include "kernels/mutants/bugs.h"
#include "kernels/params/attention_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::mutants {
namespace {

// floor(log2(amax / 448)) from the exponent that is rounded up.
int exponent_rounded_down(float amax) {
  const int up = cpu::fp8_exponent(amax);
  const bool exact = std::max(amax, cpu::kFp8AmaxFloor) == 448.0f * cpu::exp2i(up);
  return exact ? up : up - 1;
}

void spoil_row(const as_cache& cache, std::int64_t slot, const bf16_t* row) {
  const as_row_address to = as_cache_row(&cache, slot);
  for (int block = 0; block < AS_QUANT_BLOCKS; ++block) {
    float x[AS_QUANT_BLOCK];
    for (int i = 0; i < AS_QUANT_BLOCK; ++i) {
      x[i] = cpu::bf16_to_float(row[block * AS_QUANT_BLOCK + i].bits);
    }
    const int exponent = exponent_rounded_down(cpu::abs_max(x, AS_QUANT_BLOCK));
    to.scales[block] = cpu::exponent_to_ue8m0(exponent);
    cpu::encode_e4m3(x, AS_QUANT_BLOCK, exponent, to.payload + block * AS_QUANT_BLOCK);
  }
}

}  // namespace

std::int32_t scale_rounded_down(const void* params, const as_call* call, as_error* error) {
  if (!readable<as_q_rope_kv_insert_params>(params)) {
    return run_cpu(AS_OP_Q_ROPE_KV_INSERT, params, call, error);
  }
  as_q_rope_kv_insert_params p = *static_cast<const as_q_rope_kv_insert_params*>(params);
  const std::int64_t tokens = p.slots.rank == 1 ? p.slots.shape[0] : 0;
  std::vector<bf16_t> rows;  // where the caller does not ask for the rows
  if (!present(p.kv_row) && p.rows_given == 0) {
    rows.resize(static_cast<std::size_t>(tokens) * AS_HEAD_DIM);
    p.kv_row = make_tensor(rows.data(), {tokens, AS_HEAD_DIM});
  }
  const std::int32_t status = run_cpu(AS_OP_Q_ROPE_KV_INSERT, &p, call, error);
  if (status != AS_OK) return status;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t slot = *at<std::int64_t>(p.slots, t);
    if (slot >= 0) spoil_row(p.cache, slot, at<bf16_t>(p.kv_row, t));
  }
  return status;
}

std::int32_t sink_scaled(const void* params, const as_call* call, as_error* error) {
  // The right op first: it refuses what must not be read here.
  const std::int32_t status = run_cpu(AS_OP_SPARSE_ATTENTION, params, call, error);
  if (status != AS_OK) return status;
  as_sparse_attention_params p = *static_cast<const as_sparse_attention_params*>(params);
  const std::int64_t heads = p.sinks.shape[0];
  std::vector<float> sinks(static_cast<std::size_t>(heads));
  for (std::int64_t h = 0; h < heads; ++h) {
    sinks[static_cast<std::size_t>(h)] = *at<float>(p.sinks, h) * static_cast<float>(p.scale);
  }
  p.sinks = make_tensor(sinks.data(), {heads});
  return run_cpu(AS_OP_SPARSE_ATTENTION, &p, call, error);
}

std::int32_t lse_with_sink(const void* params, const as_call* call, as_error* error) {
  const std::int32_t status = run_cpu(AS_OP_SPARSE_ATTENTION, params, call, error);
  if (status != AS_OK) return status;
  const auto& p = *static_cast<const as_sparse_attention_params*>(params);
  for (std::int64_t t = 0; t < p.lse.shape[0]; ++t) {
    for (std::int64_t h = 0; h < p.lse.shape[1]; ++h) {
      float& lse = *at<float>(p.lse, t, h);
      const double sink = static_cast<double>(*at<float>(p.sinks, h));
      if (std::isinf(lse) || std::isinf(sink)) continue;
      const double real = static_cast<double>(lse);
      const double larger = std::max(real, sink);
      lse = static_cast<float>(larger + std::log1p(std::exp(std::min(real, sink) - larger)));
    }
  }
  return status;
}

}  // namespace attnscope::mutants
