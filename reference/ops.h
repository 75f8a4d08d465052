// All ops of the references: AS_FOR_EACH_REFERENCE(ENTRY) expands to ENTRY(id, params, function)
// for each; helper ops are listed in lane_entries.h. An op takes its params struct and the
// precision of the lane, and throws BadInput when a tensor does not fit:
//
//   void residual(const as_residual_params& p, const Precision& precision);
//
// Those that compute with numbers, AS_FOR_EACH_TENSOR_OP, are tensor programs in reference/torch/;
// outside of the module that these are built into, functions of the same names (torch_ops.cpp) call
// it.
#pragma once

#include "kernels/params/attention_params.h"
#include "kernels/params/compressor_params.h"
#include "kernels/params/dense_params.h"
#include "kernels/params/helper_params.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/lane_entries.h"
#include "kernels/params/op_ids.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/step_params.h"
#include "reference/precision.h"

// clang-format off
#define AS_FOR_EACH_REFERENCE(ENTRY) \
  ENTRY(AS_OP_SCHEDULE, as_schedule_params, schedule) \
  ENTRY(AS_OP_BLOCK_TABLES, as_block_tables_params, block_tables) \
  ENTRY(AS_OP_SLOT_MAPPING, as_slot_mapping_params, slot_mapping) \
  ENTRY(AS_OP_SWA_INDEX, as_swa_index_params, swa_index) \
  ENTRY(AS_OP_C128_INDEX, as_c128_index_params, c128_index) \
  ENTRY(AS_OP_ATTN_NORM, as_rms_norm_params, rms_norm) \
  ENTRY(AS_OP_Q_KV_A_PROJ, as_linear_params, linear_bf16) \
  ENTRY(AS_OP_Q_KV_NORM, as_q_kv_norm_params, q_kv_norm) \
  ENTRY(AS_OP_Q_B_PROJ, as_linear_params, linear_bf16) \
  ENTRY(AS_OP_Q_ROPE_KV_INSERT, as_q_rope_kv_insert_params, q_rope_kv_insert) \
  ENTRY(AS_OP_COMPRESSOR_PROJ, as_linear_params, linear_fp32) \
  ENTRY(AS_OP_COMPRESSOR_STATE, as_compressor_state_params, compressor_state) \
  ENTRY(AS_OP_COMPRESS_INSERT, as_compress_insert_params, compress_insert) \
  ENTRY(AS_OP_INDEXER_COMPRESSOR_PROJ, as_linear_params, linear_fp32) \
  ENTRY(AS_OP_INDEXER_COMPRESSOR_STATE, as_compressor_state_params, compressor_state) \
  ENTRY(AS_OP_INDEXER_COMPRESS_INSERT, as_compress_insert_params, compress_insert) \
  ENTRY(AS_OP_INDEXER_Q_PROJ, as_linear_params, linear_bf16) \
  ENTRY(AS_OP_INDEXER_Q, as_indexer_q_params, indexer_q) \
  ENTRY(AS_OP_INDEXER_WEIGHTS_PROJ, as_linear_params, linear_bf16) \
  ENTRY(AS_OP_INDEXER_LOGITS, as_indexer_logits_params, indexer_logits) \
  ENTRY(AS_OP_INDEXER_TOPK, as_indexer_topk_params, indexer_topk) \
  ENTRY(AS_OP_TOPK_TO_SLOTS, as_topk_to_slots_params, topk_to_slots) \
  ENTRY(AS_OP_SPARSE_ATTENTION, as_sparse_attention_params, sparse_attention) \
  ENTRY(AS_OP_INVERSE_ROPE, as_inverse_rope_params, inverse_rope) \
  ENTRY(AS_OP_WO_A, as_grouped_linear_params, grouped_linear) \
  ENTRY(AS_OP_WO_B, as_linear_params, linear_bf16) \
  ENTRY(AS_OP_RESIDUAL, as_residual_params, residual) \
  ENTRY(AS_OP_FINAL_NORM, as_rms_norm_params, rms_norm) \
  ENTRY(AS_OP_LM_HEAD, as_linear_params, linear_fp32) \
  ENTRY(AS_OP_SAMPLE, as_sample_params, sample) \
  ENTRY(AS_OP_ROPE_KV_INSERT, as_rope_kv_insert_params, rope_kv_insert) \
  ENTRY(AS_OP_PAGED_ATTENTION, as_paged_attention_params, paged_attention) \
  ENTRY(AS_OP_Q_PROJ, as_linear_params, linear_bf16) \
  ENTRY(AS_OP_K_PROJ, as_linear_params, linear_bf16) \
  ENTRY(AS_OP_V_PROJ, as_linear_params, linear_bf16) \
  ENTRY(AS_OP_O_PROJ, as_linear_params, linear_bf16)

#define AS_FOR_EACH_TENSOR_OP(ENTRY) \
  ENTRY(rms_norm, as_rms_norm_params) \
  ENTRY(linear_bf16, as_linear_params) \
  ENTRY(linear_fp32, as_linear_params) \
  ENTRY(grouped_linear, as_grouped_linear_params) \
  ENTRY(residual, as_residual_params) \
  ENTRY(q_kv_norm, as_q_kv_norm_params) \
  ENTRY(q_rope_kv_insert, as_q_rope_kv_insert_params) \
  ENTRY(sparse_attention, as_sparse_attention_params) \
  ENTRY(inverse_rope, as_inverse_rope_params) \
  ENTRY(compressor_state, as_compressor_state_params) \
  ENTRY(compress_insert, as_compress_insert_params) \
  ENTRY(indexer_q, as_indexer_q_params) \
  ENTRY(indexer_logits, as_indexer_logits_params) \
  ENTRY(indexer_topk, as_indexer_topk_params) \
  ENTRY(sample, as_sample_params) \
  ENTRY(rope_kv_insert, as_rope_kv_insert_params) \
  ENTRY(paged_attention, as_paged_attention_params) \
  ENTRY(merge_states, as_merge_states_params) \
  ENTRY(gather_rows, as_gather_rows_params) \
  ENTRY(workspace_attention, as_workspace_attention_params) \
  ENTRY(inverse_rope_quantise, as_inverse_rope_quantise_params) \
  ENTRY(fp8_linear, as_fp8_linear_params)
// clang-format on

namespace attnscope::reference {

#define AS_DECLARE(id, params, function) void function(const params& p, const Precision& precision);
AS_FOR_EACH_REFERENCE(AS_DECLARE)
AS_FOR_EACH_HELPER(AS_DECLARE)
#undef AS_DECLARE

}  // namespace attnscope::reference
