#include <cmath>

#include "engine/family/dense/dense.h"
#include "engine/family/dense/encoder_decoder.h"
#include "kernels/params/dense_params.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/step_params.h"

namespace attnscope {

void dense_layer_numbers(as_op_id op, int layer, const ModelConfig& config, std::int32_t,
                         void* params) {
  const DenseAttention& d = config.dense;
  switch (op) {
    case AS_OP_ATTN_NORM:
    case AS_OP_MEMORY_NORM:
    case AS_OP_FINAL_NORM: {
      auto& p = *static_cast<as_rms_norm_params*>(params);
      p.eps = config.rms_eps;
      p.weight_plus_one = d.weight_plus_one ? 1 : 0;
      break;
    }
    case AS_OP_ROPE_KV_INSERT: {
      auto& p = *static_cast<as_rope_kv_insert_params*>(params);
      p.eps = config.rms_eps;
      p.style = d.rope_style;
      p.weight_plus_one = d.weight_plus_one ? 1 : 0;
      break;
    }
    case AS_OP_VARLEN_ATTENTION: {
      auto& p = *static_cast<as_varlen_attention_params*>(params);
      p.scale = d.scale > 0 ? d.scale : 1 / std::sqrt(static_cast<double>(config.head_dim));
      p.soft_cap = d.soft_cap;
      p.window_left = p.window_right = -1;
      p.bias_distance = d.bias_distance;
      p.mask_code = dense_mask_code(d.mask, false);
      p.score_code = dense_mask_code(d.score, true);
      break;
    }
    case AS_OP_PAGED_ATTENTION: {
      auto& p = *static_cast<as_paged_attention_params*>(params);
      p.scale = d.scale > 0 ? d.scale : 1 / std::sqrt(static_cast<double>(config.head_dim));
      p.soft_cap = d.soft_cap;
      const bool cross = dense_side(config, layer) == kCrossSide;
      p.window = dense_window(config, layer);
      p.causal = dense_looks_ahead(config, layer) ? 0 : 1;
      p.mask_code = dense_mask_code(d.mask, false);
      p.score_code = dense_mask_code(d.score, true);
      p.form = dense_form(config, layer);
      p.wide_tokens = dense_first_tokens(config, layer);
      p.bias_distance = cross ? 0 : d.bias_distance;
      break;
    }
    default:
      break;
  }
}

void dense_step_numbers(as_op_id op, const ModelConfig& config, const CacheLayout&,
                        std::int64_t token_budget, std::int64_t alignment, void* params) {
  if (op == AS_OP_SCHEDULE) {
    auto& p = *static_cast<as_schedule_params*>(params);
    p.token_budget = static_cast<std::int32_t>(token_budget);
    p.alignment = static_cast<std::int32_t>(alignment);
  } else if (op == AS_OP_SLOT_MAPPING) {
    static_cast<as_slot_mapping_params*>(params)->mla_group = -1;
  } else if (op == AS_OP_LOCAL_BATCH) {
    auto& p = *static_cast<as_local_batch_params*>(params);
    p.chunk = dense_chunk(config);
    p.block_size = config.dense.block_tokens;
  }
}

}  // namespace attnscope
