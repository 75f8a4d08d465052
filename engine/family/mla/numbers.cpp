#include "engine/family/mla/mla.h"
#include "kernels/params/dense_params.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/mla_params.h"
#include "kernels/params/step_params.h"

namespace attnscope {
namespace {

template <class S>
S& params_as(void* params) {
  return *static_cast<S*>(params);
}

}  // namespace

void mla_layer_numbers(as_op_id op, int, const ModelConfig& config, std::int32_t rows_per_block,
                       void* params) {
  const MlaAttention& m = config.mla;
  switch (op) {
    case AS_OP_ATTN_NORM:
    case AS_OP_FINAL_NORM:
      params_as<as_rms_norm_params>(params).eps = config.rms_eps;
      break;
    case AS_OP_Q_KV_NORM:
      params_as<as_q_kv_norm_params>(params).eps = config.rms_eps;
      break;
    case AS_OP_MLA_KV_INSERT:
      params_as<as_mla_kv_insert_params>(params).scale_rule = m.latent_scale;
      break;
    case AS_OP_INDEX_QUERY: {
      auto& p = params_as<as_index_query_params>(params);
      p.hadamard = m.hadamard ? 1 : 0;
      p.scale_rule = m.index_scale;
      break;
    }
    case AS_OP_INDEX_KEY_INSERT: {
      auto& p = params_as<as_index_key_insert_params>(params);
      p.eps = m.index_norm_eps;
      p.hadamard = m.hadamard ? 1 : 0;
      p.scale_rule = m.index_scale;
      break;
    }
    case AS_OP_INDEXER_LOGITS:
      params_as<as_indexer_logits_params>(params).weights.reserved = config.switches.index_scores;
      break;
    case AS_OP_TOPK_TO_SLOTS:
      params_as<as_topk_to_slots_params>(params).rows_per_block = rows_per_block;
      break;
    case AS_OP_MLA_ATTENTION:
      params_as<as_mla_attention_params>(params).scale = mla_scale(config);
      break;
    case AS_OP_SPARSE_MLA_ATTENTION:
      params_as<as_sparse_mla_attention_params>(params).scale = mla_scale(config);
      break;
    default:
      break;
  }
}

void mla_step_numbers(as_op_id op, const ModelConfig&, const CacheLayout&,
                      std::int64_t token_budget, std::int64_t alignment, void* params) {
  if (op == AS_OP_SCHEDULE) {
    auto& p = params_as<as_schedule_params>(params);
    p.token_budget = static_cast<std::int32_t>(token_budget);
    p.alignment = static_cast<std::int32_t>(alignment);
  } else if (op == AS_OP_SLOT_MAPPING) {
    params_as<as_slot_mapping_params>(params).mla_group = -1;  // no rows of several tokens
  }
}

}  // namespace attnscope
