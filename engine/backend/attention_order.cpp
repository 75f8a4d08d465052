// In which order backends are tried: the first that accepts is taken.
#include <algorithm>

#include "engine/backend/attention_selector.h"

namespace attnscope {
namespace {

using BackendNames = std::vector<std::string>;

constexpr int kFewHeads = 16;  // up to which FlashInfer's sparse MLA is faster with a bf16 cache

BackendNames state_order(AttentionLayerKind kind) {
  static constexpr const char* kNames[] = {"",           "MAMBA1", "MAMBA2",
                                           "SHORT_CONV", "LINEAR", "GDN_ATTN"};
  return {kNames[static_cast<int>(kind)]};
}

BackendNames cuda_latent_order(const AttentionRequest& request) {
  BackendNames names;
  // Its layers do not ask the selector.
  if (request.model_type == "deepseek_v4") {
    names = {"FLASHMLA_SPARSE_DSV4", "FLASHINFER_MLA_SPARSE_DSV4"};
  }
  if (request.gpu.major != 10) {
    for (const char* name :
         {"FLASH_ATTN_MLA", "FLASHMLA", "FLASHINFER_MLA", "TRITON_MLA", "FLASHMLA_SPARSE"}) {
      names.emplace_back(name);
    }
    return names;
  }
  for (const char* name :
       {"FLASHINFER_MLA", "CUTLASS_MLA", "FLASH_ATTN_MLA", "FLASHMLA", "TRITON_MLA"}) {
    names.emplace_back(name);
  }
  const bool first = request.cache_dtype.starts_with("fp8") || request.heads <= kFewHeads;
  names.emplace_back(first ? "FLASHINFER_MLA_SPARSE" : "FLASHMLA_SPARSE");
  names.emplace_back(first ? "FLASHMLA_SPARSE" : "FLASHINFER_MLA_SPARSE");
  return names;
}

BackendNames cuda_order(const AttentionRequest& request) {
  if (request.mla) return cuda_latent_order(request);
  BackendNames names;
  // Models with two head sizes name it themselves.
  if (request.value_size != request.head_size) names.emplace_back("FLASH_ATTN_DIFFKV");
  const bool blackwell = request.gpu.major == 10 && !request.non_causal;
  names.emplace_back(blackwell ? "FLASHINFER" : "FLASH_ATTN");
  names.emplace_back(blackwell ? "FLASH_ATTN" : "FLASHINFER");
  for (const char* name : {"TRITON_ATTN", "FLEX_ATTENTION", "TURBOQUANT"}) names.emplace_back(name);
  return names;
}

// With AITER installed and switched on.
BackendNames rocm_order(const AttentionRequest& request) {
  if (request.sparse) return {"ROCM_AITER_MLA_SPARSE"};
  if (request.mla) return {"ROCM_AITER_MLA", "TRITON_MLA", "ROCM_AITER_TRITON_MLA"};
  return {"ROCM_ATTN", "ROCM_AITER_FA", "ROCM_AITER_UNIFIED_ATTN", "TRITON_ATTN", "TURBOQUANT"};
}

BackendNames xpu_order(const AttentionRequest& request) {
  if (request.sparse) return {"XPU_MLA_SPARSE"};
  if (request.mla) return {"TRITON_MLA"};
  return {"FLASH_ATTN", "TRITON_ATTN", "TURBOQUANT"};
}

}  // namespace

std::vector<std::string> backend_order(const AttentionRequest& request) {
  if (request.kind != AttentionLayerKind::kAttention) return state_order(request.kind);
  switch (request.platform) {
    case AttentionPlatform::kCuda:
      return cuda_order(request);
    case AttentionPlatform::kRocm:
      return rocm_order(request);
    case AttentionPlatform::kXpu:
      return xpu_order(request);
    case AttentionPlatform::kCpu:
      break;
  }
  return {"CPU_ATTN"};
}

}  // namespace attnscope
