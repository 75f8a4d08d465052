/* Every op with its params struct and the name of the function that computes it, in lanes of
 * kernels and in the references: AS_FOR_EACH_KERNEL(ENTRY) expands to ENTRY(id, params, function)
 * for each that a lane of kernels has, AS_FOR_EACH_HELPER for helper ops, AS_FOR_EACH_DECISION for
 * what the engine does itself whatever lane runs the others. */
#ifndef ATTNSCOPE_KERNELS_PARAMS_LANE_ENTRIES_H
#define ATTNSCOPE_KERNELS_PARAMS_LANE_ENTRIES_H

#include "kernels/params/op_ids.h"

/* clang-format off */
#define AS_FOR_EACH_DECISION(ENTRY) \
  ENTRY(AS_OP_SCHEDULE, as_schedule_params, schedule) \
  ENTRY(AS_OP_BLOCK_TABLES, as_block_tables_params, block_tables)

#define AS_FOR_EACH_KERNEL(ENTRY) \
  ENTRY(AS_OP_SLOT_MAPPING, as_slot_mapping_params, slot_mapping) \
  ENTRY(AS_OP_SWA_INDEX, as_swa_index_params, swa_index) \
  ENTRY(AS_OP_C128_INDEX, as_c128_index_params, c128_index) \
  ENTRY(AS_OP_ATTN_NORM, as_rms_norm_params, rms_norm) \
  ENTRY(AS_OP_Q_KV_A_PROJ, as_linear_params, linear) \
  ENTRY(AS_OP_Q_KV_NORM, as_q_kv_norm_params, q_kv_norm) \
  ENTRY(AS_OP_Q_B_PROJ, as_linear_params, linear) \
  ENTRY(AS_OP_Q_ROPE_KV_INSERT, as_q_rope_kv_insert_params, q_rope_kv_insert) \
  ENTRY(AS_OP_COMPRESSOR_PROJ, as_linear_params, linear) \
  ENTRY(AS_OP_COMPRESSOR_STATE, as_compressor_state_params, compressor_state) \
  ENTRY(AS_OP_COMPRESS_INSERT, as_compress_insert_params, compress_insert) \
  ENTRY(AS_OP_INDEXER_COMPRESSOR_PROJ, as_linear_params, linear) \
  ENTRY(AS_OP_INDEXER_COMPRESSOR_STATE, as_compressor_state_params, compressor_state) \
  ENTRY(AS_OP_INDEXER_COMPRESS_INSERT, as_compress_insert_params, compress_insert) \
  ENTRY(AS_OP_INDEXER_Q_PROJ, as_linear_params, linear) \
  ENTRY(AS_OP_INDEXER_Q, as_indexer_q_params, indexer_q) \
  ENTRY(AS_OP_INDEXER_WEIGHTS_PROJ, as_linear_params, linear) \
  ENTRY(AS_OP_INDEXER_LOGITS, as_indexer_logits_params, indexer_logits) \
  ENTRY(AS_OP_INDEXER_TOPK, as_indexer_topk_params, indexer_topk) \
  ENTRY(AS_OP_TOPK_TO_SLOTS, as_topk_to_slots_params, topk_to_slots) \
  ENTRY(AS_OP_SPARSE_ATTENTION, as_sparse_attention_params, sparse_attention) \
  ENTRY(AS_OP_INVERSE_ROPE, as_inverse_rope_params, inverse_rope) \
  ENTRY(AS_OP_WO_A, as_grouped_linear_params, grouped_linear) \
  ENTRY(AS_OP_WO_B, as_linear_params, linear) \
  ENTRY(AS_OP_RESIDUAL, as_residual_params, residual) \
  ENTRY(AS_OP_FINAL_NORM, as_rms_norm_params, rms_norm) \
  ENTRY(AS_OP_LM_HEAD, as_linear_params, linear) \
  ENTRY(AS_OP_SAMPLE, as_sample_params, sample) \
  ENTRY(AS_OP_ROPE_KV_INSERT, as_rope_kv_insert_params, rope_kv_insert) \
  ENTRY(AS_OP_PAGED_ATTENTION, as_paged_attention_params, paged_attention) \
  ENTRY(AS_OP_Q_PROJ, as_linear_params, linear) \
  ENTRY(AS_OP_K_PROJ, as_linear_params, linear) \
  ENTRY(AS_OP_V_PROJ, as_linear_params, linear) \
  ENTRY(AS_OP_O_PROJ, as_linear_params, linear)

#define AS_FOR_EACH_HELPER(ENTRY) \
  ENTRY(AS_OP_MERGE_STATES, as_merge_states_params, merge_states) \
  ENTRY(AS_OP_GATHER_ROWS, as_gather_rows_params, gather_rows) \
  ENTRY(AS_OP_COPY_BLOCKS, as_copy_blocks_params, copy_blocks) \
  ENTRY(AS_OP_WORKSPACE_ATTENTION, as_workspace_attention_params, workspace_attention) \
  ENTRY(AS_OP_INVERSE_ROPE_QUANTISE, as_inverse_rope_quantise_params, inverse_rope_quantise) \
  ENTRY(AS_OP_FP8_LINEAR, as_fp8_linear_params, fp8_linear)
/* clang-format on */

#endif
