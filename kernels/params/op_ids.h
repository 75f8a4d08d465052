/* The list of ops. An op is the unit that is stepped, traced, compared, timed and replaced.
 *
 *   AS_FOR_EACH_DECISION(ENTRY)   what the engine does itself, whatever lane runs the others
 *   AS_FOR_EACH_KERNEL(ENTRY)     what a lane of kernels has
 *   AS_FOR_EACH_HELPER(ENTRY)     helper ops, which have no place in a step
 *
 * expand to ENTRY(id, number, params, function) for each: its id and number, its params struct, and
 * the name of the function that computes it in lanes of kernels and in the references. Numbers
 * never change meaning once released; new ops go to the end of their list with the next one. */
#ifndef ATTNSCOPE_KERNELS_PARAMS_OP_IDS_H
#define ATTNSCOPE_KERNELS_PARAMS_OP_IDS_H

#include <stdint.h>

/* clang-format off */
#define AS_FOR_EACH_DECISION(ENTRY) \
  /* once per step, by the engine itself */ \
  ENTRY(AS_OP_SCHEDULE, 0, as_schedule_params, schedule) \
  ENTRY(AS_OP_BLOCK_TABLES, 1, as_block_tables_params, block_tables)

#define AS_FOR_EACH_KERNEL(ENTRY) \
  /* once per step, before the layers */ \
  ENTRY(AS_OP_SLOT_MAPPING, 2, as_slot_mapping_params, slot_mapping) \
  ENTRY(AS_OP_SWA_INDEX, 3, as_swa_index_params, swa_index) \
  ENTRY(AS_OP_C128_INDEX, 4, as_c128_index_params, c128_index) \
  /* every layer of DeepSeek-V4 */ \
  ENTRY(AS_OP_ATTN_NORM, 5, as_rms_norm_params, rms_norm) \
  ENTRY(AS_OP_Q_KV_A_PROJ, 6, as_linear_params, linear) \
  ENTRY(AS_OP_Q_KV_NORM, 7, as_q_kv_norm_params, q_kv_norm) \
  ENTRY(AS_OP_Q_B_PROJ, 8, as_linear_params, linear) \
  ENTRY(AS_OP_Q_ROPE_KV_INSERT, 9, as_q_rope_kv_insert_params, q_rope_kv_insert) \
  /* C4A and C128A layers */ \
  ENTRY(AS_OP_COMPRESSOR_PROJ, 10, as_linear_params, linear) \
  ENTRY(AS_OP_COMPRESSOR_STATE, 11, as_compressor_state_params, compressor_state) \
  ENTRY(AS_OP_COMPRESS_INSERT, 12, as_compress_insert_params, compress_insert) \
  /* C4A layers */ \
  ENTRY(AS_OP_INDEXER_COMPRESSOR_PROJ, 13, as_linear_params, linear) \
  ENTRY(AS_OP_INDEXER_COMPRESSOR_STATE, 14, as_compressor_state_params, compressor_state) \
  ENTRY(AS_OP_INDEXER_COMPRESS_INSERT, 15, as_compress_insert_params, compress_insert) \
  ENTRY(AS_OP_INDEXER_Q_PROJ, 16, as_linear_params, linear) \
  ENTRY(AS_OP_INDEXER_Q, 17, as_indexer_q_params, indexer_q) \
  ENTRY(AS_OP_INDEXER_WEIGHTS_PROJ, 18, as_linear_params, linear) \
  ENTRY(AS_OP_INDEXER_LOGITS, 19, as_indexer_logits_params, indexer_logits) \
  ENTRY(AS_OP_INDEXER_TOPK, 20, as_indexer_topk_params, indexer_topk) \
  ENTRY(AS_OP_TOPK_TO_SLOTS, 21, as_topk_to_slots_params, topk_to_slots) \
  /* every layer */ \
  ENTRY(AS_OP_SPARSE_ATTENTION, 22, as_sparse_attention_params, sparse_attention) \
  ENTRY(AS_OP_INVERSE_ROPE, 23, as_inverse_rope_params, inverse_rope) \
  ENTRY(AS_OP_WO_A, 24, as_grouped_linear_params, grouped_linear) \
  ENTRY(AS_OP_WO_B, 25, as_linear_params, linear) \
  ENTRY(AS_OP_RESIDUAL, 26, as_residual_params, residual) \
  /* once per step, after the layers */ \
  ENTRY(AS_OP_FINAL_NORM, 27, as_rms_norm_params, rms_norm) \
  ENTRY(AS_OP_LM_HEAD, 28, as_linear_params, linear) \
  ENTRY(AS_OP_SAMPLE, 29, as_sample_params, sample) \
  /* layers of dense attention */ \
  ENTRY(AS_OP_ROPE_KV_INSERT, 30, as_rope_kv_insert_params, rope_kv_insert) \
  ENTRY(AS_OP_PAGED_ATTENTION, 31, as_paged_attention_params, paged_attention) \
  ENTRY(AS_OP_Q_PROJ, 32, as_linear_params, linear) \
  ENTRY(AS_OP_K_PROJ, 33, as_linear_params, linear) \
  ENTRY(AS_OP_V_PROJ, 34, as_linear_params, linear) \
  ENTRY(AS_OP_O_PROJ, 35, as_linear_params, linear) \
  /* once per step, before layers of dense attention with chunks */ \
  ENTRY(AS_OP_LOCAL_BATCH, 36, as_local_batch_params, local_batch) \
  /* once per step, where a model of DeepSeek-V4 asks for a plan */ \
  ENTRY(AS_OP_ATTENTION_PLAN, 37, as_attention_plan_params, attention_plan) \
  /* layers of absorbed MLA; those of an indexer that scores tokens */ \
  ENTRY(AS_OP_INDEX_K_PROJ, 38, as_linear_params, linear) \
  ENTRY(AS_OP_INDEX_WEIGHTS_PROJ, 39, as_linear_params, linear) \
  ENTRY(AS_OP_MLA_Q_ABSORB, 40, as_mla_q_absorb_params, mla_q_absorb) \
  ENTRY(AS_OP_MLA_KV_INSERT, 41, as_mla_kv_insert_params, mla_kv_insert) \
  ENTRY(AS_OP_INDEX_QUERY, 42, as_index_query_params, index_query) \
  ENTRY(AS_OP_INDEX_KEY_INSERT, 43, as_index_key_insert_params, index_key_insert) \
  ENTRY(AS_OP_MLA_ATTENTION, 44, as_mla_attention_params, mla_attention) \
  ENTRY(AS_OP_SPARSE_MLA_ATTENTION, 45, as_sparse_mla_attention_params, sparse_mla_attention) \
  ENTRY(AS_OP_MLA_V_UP, 46, as_mla_v_up_params, mla_v_up) \
  /* the draft layer of DeepSeek-V4, before what it has of every layer */ \
  ENTRY(AS_OP_DRAFT_NORM, 47, as_draft_norm_params, draft_norm) \
  ENTRY(AS_OP_DRAFT_H_PROJ, 48, as_linear_params, linear) \
  ENTRY(AS_OP_DRAFT_E_PROJ, 49, as_linear_params, linear) \
  ENTRY(AS_OP_DRAFT_SUM, 50, as_residual_params, residual) \
  /* layers of dense attention that keep no rows */ \
  ENTRY(AS_OP_VARLEN_ATTENTION, 51, as_varlen_attention_params, varlen_attention) \
  /* layers that select, where their rows lie in host memory */ \
  ENTRY(AS_OP_EXCHANGE_ROWS, 52, as_exchange_rows_params, exchange_rows) \
  /* models with cross attention: once per step; in layers that attend to the source */ \
  ENTRY(AS_OP_CROSS_BATCH, 53, as_cross_batch_params, cross_batch) \
  ENTRY(AS_OP_MEMORY_NORM, 54, as_rms_norm_params, rms_norm) \
  /* steps that move blocks of preempted requests to host memory, or back */ \
  ENTRY(AS_OP_SWAP_OUT, 55, as_swap_out_params, swap_out) \
  ENTRY(AS_OP_SWAP_IN, 56, as_swap_in_params, swap_in)

#define AS_FOR_EACH_HELPER(ENTRY) \
  /* what serving code needs around the others, called on their own */ \
  ENTRY(AS_OP_MERGE_STATES, 1000, as_merge_states_params, merge_states) \
  ENTRY(AS_OP_GATHER_ROWS, 1001, as_gather_rows_params, gather_rows) \
  ENTRY(AS_OP_COPY_BLOCKS, 1002, as_copy_blocks_params, copy_blocks) \
  ENTRY(AS_OP_WORKSPACE_ATTENTION, 1003, as_workspace_attention_params, workspace_attention) \
  ENTRY(AS_OP_INVERSE_ROPE_QUANTISE, 1004, as_inverse_rope_quantise_params, inverse_rope_quantise) \
  ENTRY(AS_OP_FP8_LINEAR, 1005, as_fp8_linear_params, fp8_linear) \
  ENTRY(AS_OP_SEQUENCE_TABLE, 1006, as_sequence_table_params, sequence_table) \
  ENTRY(AS_OP_PAGE_INDICES, 1007, as_page_indices_params, page_indices) \
  ENTRY(AS_OP_COMPACT_TABLES, 1008, as_compact_tables_params, compact_tables) \
  ENTRY(AS_OP_PAD_ROWS, 1009, as_pad_rows_params, pad_rows) \
  ENTRY(AS_OP_CONVERT_ROWS, 1010, as_convert_rows_params, convert_rows)

#define AS_OP_NUMBER(id, number, params, function) id = (number),
typedef enum as_op_id {
  AS_FOR_EACH_DECISION(AS_OP_NUMBER)
  AS_FOR_EACH_KERNEL(AS_OP_NUMBER)
  AS_OP_COUNT, /* ids below it have a place in a step */
  AS_FOR_EACH_HELPER(AS_OP_NUMBER)
} as_op_id;
/* clang-format on */
#undef AS_OP_NUMBER

/* The table's list: the ops of a step, then the helper ops. */
#define AS_OP_ONE(id, number, params, function) +1 /* NOLINT(bugprone-macro-parentheses) */
enum {
  AS_FIRST_HELPER = 1000,
  AS_END_OF_HELPERS = AS_FIRST_HELPER AS_FOR_EACH_HELPER(AS_OP_ONE),
  AS_NUM_OPS = AS_OP_COUNT + AS_END_OF_HELPERS - AS_FIRST_HELPER
};
#undef AS_OP_ONE

/* The place of an id in that list, -1 for an unknown one. */
static inline int32_t as_op_index(int32_t id) {
  if (id >= 0 && id < AS_OP_COUNT) return id;
  return id >= AS_FIRST_HELPER && id < AS_END_OF_HELPERS ? id - AS_FIRST_HELPER + AS_OP_COUNT : -1;
}

#endif
