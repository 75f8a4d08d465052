#include <cmath>

#include "engine/family/deepseek_v4/deepseek_v4.h"
#include "engine/model/fp8_projections.h"
#include "kernels/params/attention_params.h"
#include "kernels/params/compressor_params.h"
#include "kernels/params/dense_params.h"
#include "kernels/params/draft_params.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/step_params.h"

namespace attnscope {
namespace {

template <class S>
S& as(void* params) {
  return *static_cast<S*>(params);
}

std::int32_t hadamard_of(const ProfileSwitches& switches) {
  if (!switches.hadamard) return AS_HADAMARD_OFF;
  return switches.round_rotated ? AS_HADAMARD_ROUNDED : AS_HADAMARD_ON;
}

}  // namespace

void deepseek_v4_layer_numbers(as_op_id op, int layer, const ModelConfig& config,
                               std::int32_t rows_per_block, void* params) {
  const ProfileSwitches& switches = config.switches;
  switch (op) {
    case AS_OP_ATTN_NORM:
    case AS_OP_FINAL_NORM:
      as<as_rms_norm_params>(params).eps = config.rms_eps;
      break;
    case AS_OP_DRAFT_NORM:
      as<as_draft_norm_params>(params).eps = config.rms_eps;
      break;
    case AS_OP_Q_KV_NORM:
      as<as_q_kv_norm_params>(params).eps = config.rms_eps;
      break;
    case AS_OP_Q_ROPE_KV_INSERT: {
      auto& p = as<as_q_rope_kv_insert_params>(params);
      p.eps = config.rms_eps;
      p.q_norm = switches.q_norm;
      p.scale_floor = switches.scale_floor;
      break;
    }
    case AS_OP_COMPRESSOR_STATE:
    case AS_OP_INDEXER_COMPRESSOR_STATE:
      as<as_compressor_state_params>(params).ratio = config.ratio(layer);
      break;
    case AS_OP_COMPRESS_INSERT:
    case AS_OP_INDEXER_COMPRESS_INSERT: {
      auto& p = as<as_compress_insert_params>(params);
      p.eps = config.rms_eps;
      p.ratio = config.ratio(layer);
      p.hadamard = op == AS_OP_INDEXER_COMPRESS_INSERT ? hadamard_of(switches) : AS_HADAMARD_OFF;
      p.round_pooled = switches.round_pooled ? 1 : 0;
      p.scale_floor = switches.scale_floor;
      p.fp4_rule = switches.fp4_rule;
      break;
    }
    case AS_OP_INDEXER_Q: {
      auto& p = as<as_indexer_q_params>(params);
      p.format = switches.index_format;
      p.hadamard = hadamard_of(switches);
      p.scale_floor = switches.scale_floor;
      p.fp4_rule = switches.fp4_rule;
      break;
    }
    case AS_OP_INDEXER_LOGITS:
      as<as_indexer_logits_params>(params).weights.reserved = switches.index_scores;
      break;
    case AS_OP_TOPK_TO_SLOTS:
      as<as_topk_to_slots_params>(params).rows_per_block = rows_per_block;
      break;
    case AS_OP_INVERSE_ROPE:
      // vLLM's floor of what its wo_a reads; other projections have 1e-4.
      if (groups_run_in_fp8(config, config.o_lora, config.heads_per_group() * config.head_dim)) {
        as<as_inverse_rope_params>(params).scale_floor = AS_SCALE_FLOOR_1E10;
      }
      break;
    case AS_OP_SPARSE_ATTENTION:
      as<as_sparse_attention_params>(params).scale =
          1 / std::sqrt(static_cast<double>(config.head_dim));
      break;
    default:
      break;
  }
}

void deepseek_v4_step_numbers(as_op_id op, const ModelConfig& config, const CacheLayout& layout,
                              std::int64_t token_budget, std::int64_t alignment, void* params) {
  const auto block_tokens = [&layout](int group) {
    return layout.groups[static_cast<std::size_t>(group)].block_tokens;
  };
  switch (op) {
    case AS_OP_SCHEDULE: {
      auto& p = as<as_schedule_params>(params);
      p.token_budget = static_cast<std::int32_t>(token_budget);
      p.alignment = static_cast<std::int32_t>(alignment);
      break;
    }
    case AS_OP_SLOT_MAPPING:
      as<as_slot_mapping_params>(params).mla_group = layout.mla_group;
      break;
    case AS_OP_SWA_INDEX: {
      auto& p = as<as_swa_index_params>(params);
      p.block_size = block_tokens(layout.swa_groups.front());
      p.window = config.window;
      break;
    }
    case AS_OP_C128_INDEX: {
      auto& p = as<as_c128_index_params>(params);
      p.ratio = 128;
      p.rows_per_block = block_tokens(layout.mla_group) / p.ratio;
      break;
    }
    case AS_OP_ATTENTION_PLAN: {
      auto& p = as<as_attention_plan_params>(params);
      p.top_k = config.index_topk;
      p.heads = config.heads;
      p.multiprocessors = config.switches.multiprocessors;
      p.rule = config.switches.attention_plan;
      break;
    }
    default:
      break;
  }
}

}  // namespace attnscope
