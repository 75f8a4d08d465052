#include "kernels/params/op_table.h"

#include <string.h>

#include "kernels/params/attention_params.h"
#include "kernels/params/compressor_params.h"
#include "kernels/params/dense_params.h"
#include "kernels/params/draft_params.h"
#include "kernels/params/helper_params.h"
#include "kernels/params/helper_taps.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/mla_params.h"
#include "kernels/params/offload_params.h"
#include "kernels/params/op_ids.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/step_params.h"
#include "kernels/params/tap_macros.h"

static const as_tap_info kSchedule[] = {
    IN(as_schedule_params, groups, "G,2", "i32"),
    IN(as_schedule_params, num_tokens, "R", "i32"),
    IN(as_schedule_params, num_before, "R", "i32"),
    IN(as_schedule_params, running, "R", "i32"),
    IN_BOTH(as_schedule_params, joins, lost_to, "R", "i32"),
    IN(as_schedule_params, matching, "R", "i32"),
    OUT(as_schedule_params, num_computed, "R", "i32", "exact"),
    OUT(as_schedule_params, num_scheduled_tokens, "R", "i32", "exact"),
};
static const as_param_info kScheduleFields[] = {
    INTEGER(as_schedule_params, token_budget),
    INTEGER(as_schedule_params, alignment),
    LATER_INTEGER(as_schedule_params, longest_chunk),
};

static const as_tap_info kBlockTables[] = {
    IN(as_block_tables_params, groups, "G,2", "i32"),
    IN(as_block_tables_params, num_computed, "R", "i32"),
    IN(as_block_tables_params, num_scheduled_tokens, "R", "i32"),
    IN(as_block_tables_params, joins, "R", "i32"),
    IN(as_block_tables_params, blocks, "G,R,C", "i32"),
    IN(as_block_tables_params, tables_before, "G,R,C", "i32"),
    IN(as_block_tables_params, counts_before, "G,R", "i32"),
    OUT(as_block_tables_params, tables, "G,R,C", "i32", "exact"),
    OUT(as_block_tables_params, counts, "G,R", "i32", "exact"),
};

static const as_tap_info kSlotMapping[] = {
    IN(as_slot_mapping_params, groups, "G,2", "i32"),
    IN(as_slot_mapping_params, tables, "G,R,C", "i32"),
    IN(as_slot_mapping_params, positions, "T", "i64"),
    IN(as_slot_mapping_params, token_to_req, "T", "i32"),
    OUT(as_slot_mapping_params, slots, "G,T", "i64", "exact"),
    OUT(as_slot_mapping_params, c4_slots, "T", "i64", "exact"),
    OUT(as_slot_mapping_params, c128_slots, "T", "i64", "exact"),
    OUT(as_slot_mapping_params, c4_lens, "T", "i32", "exact"),
    OUT(as_slot_mapping_params, seen_lens, "T", "i32", "exact"),
};
static const as_param_info kSlotMappingFields[] = {
    INTEGER(as_slot_mapping_params, mla_group),
};

static const as_tap_info kSwaIndex[] = {
    IN(as_swa_index_params, tables, "S,R,C", "i32"),
    IN(as_swa_index_params, query_start_loc, "R", "i32"),
    IN(as_swa_index_params, seq_lens, "R", "i32"),
    IN(as_swa_index_params, token_to_req, "T", "i32"),
    OUT(as_swa_index_params, indices, "S,T,W", "i32", "exact"),
    OUT(as_swa_index_params, lens, "T", "i32", "exact"),
};
static const as_param_info kSwaIndexFields[] = {
    INTEGER(as_swa_index_params, block_size),
    INTEGER(as_swa_index_params, window),
};

static const as_tap_info kC128Index[] = {
    IN(as_c128_index_params, table, "R,C", "i32"),
    IN(as_c128_index_params, positions, "T", "i64"),
    IN(as_c128_index_params, token_to_req, "T", "i32"),
    OUT(as_c128_index_params, indices, "T,A", "i32", "exact"),
    OUT(as_c128_index_params, lens, "T", "i32", "exact"),
};
static const as_param_info kC128IndexFields[] = {
    INTEGER(as_c128_index_params, ratio),
    INTEGER(as_c128_index_params, rows_per_block),
};

static const as_tap_info kRmsNorm[] = {
    IN(as_rms_norm_params, x, "T,hidden", "bf16"),
    IN(as_rms_norm_params, weight, "hidden", "bf16"),
    OUT(as_rms_norm_params, y, "T,hidden", "bf16", "dense"),
};
static const as_param_info kRmsNormFields[] = {
    REAL(as_rms_norm_params, eps),
    LATER_INTEGER(as_rms_norm_params, weight_plus_one),
};

static const as_tap_info kLinear[] = {
    IN(as_linear_params, x, "T,in", "bf16"),
    IN(as_linear_params, weight, "out,in", "bf16|u8"),
    IN(as_linear_params, weight_scale, "out/128,in/128", "f32"),
    OUT(as_linear_params, y, "T,out", "bf16|f32", "dense"),
};

static const as_tap_info kQKvNorm[] = {
    IN(as_q_kv_norm_params, qkv, "T,qkv", "bf16"),
    IN(as_q_kv_norm_params, q_weight, "q_lora", "bf16"),
    IN(as_q_kv_norm_params, kv_weight, "D", "bf16"),
    OUT(as_q_kv_norm_params, qr, "T,q_lora", "bf16", "dense"),
    OUT(as_q_kv_norm_params, kv, "T,D", "bf16", "dense"),
};
static const as_param_info kQKvNormFields[] = {
    REAL(as_q_kv_norm_params, eps),
};

static const as_tap_info kQRopeKvInsert[] = {
    IN(as_q_rope_kv_insert_params, q_raw, "T,H,D", "bf16"),
    IN(as_q_rope_kv_insert_params, kv, "T,D", "bf16"),
    IN(as_q_rope_kv_insert_params, positions, "T", "i64"),
    IN(as_q_rope_kv_insert_params, slots, "T", "i64"),
    OUT(as_q_rope_kv_insert_params, q, "T,H,D", "bf16", "row"),
    OUT_ROW(as_q_rope_kv_insert_params, kv_row, "T,D", "row", slots),
    OUT_QUANTISED(as_q_rope_kv_insert_params, cache, "T,bytes", "bytes", slots),
};
static const as_param_info kQRopeKvInsertFields[] = {
    ROPE(as_q_rope_kv_insert_params, rope),
    REAL(as_q_rope_kv_insert_params, eps),
    INTEGER(as_q_rope_kv_insert_params, rows_given),
    LATER_INTEGER(as_q_rope_kv_insert_params, q_norm),
    LATER_INTEGER(as_q_rope_kv_insert_params, scale_floor),
};

static const as_tap_info kCompressorState[] = {
    IN(as_compressor_state_params, proj, "T,2cd", "f32"),
    IN(as_compressor_state_params, ape, "ratio,cd", "f32"),
    IN(as_compressor_state_params, positions, "T", "i64"),
    IN(as_compressor_state_params, slots, "T", "i64"),
    OUT_CACHE(as_compressor_state_params, state, "T,2cd", "dense", slots),
};
static const as_param_info kCompressorStateFields[] = {
    INTEGER(as_compressor_state_params, ratio),
};

static const as_tap_info kCompressInsert[] = {
    IN_CACHE(as_compress_insert_params, state, "rows,2cd"),
    IN(as_compress_insert_params, table, "R,C", "i32"),
    IN(as_compress_insert_params, token_to_req, "T", "i32"),
    IN(as_compress_insert_params, positions, "T", "i64"),
    IN(as_compress_insert_params, slots, "T", "i64"),
    IN(as_compress_insert_params, weight, "d", "bf16"),
    OUT_ROW(as_compress_insert_params, row, "T,d", "row", slots),
    OUT_QUANTISED(as_compress_insert_params, cache, "T,bytes", "bytes", slots),
};
static const as_param_info kCompressInsertFields[] = {
    ROPE(as_compress_insert_params, rope),
    REAL(as_compress_insert_params, eps),
    INTEGER(as_compress_insert_params, ratio),
    INTEGER(as_compress_insert_params, hadamard),
    INTEGER(as_compress_insert_params, round_pooled),
    INTEGER(as_compress_insert_params, rows_given),
    LATER_INTEGER(as_compress_insert_params, scale_floor),
    LATER_INTEGER(as_compress_insert_params, fp4_rule),
};

static const as_tap_info kIndexerQ[] = {
    IN(as_indexer_q_params, q_raw, "T,J,d", "bf16"),
    IN(as_indexer_q_params, weights_raw, "T,J", "bf16"),
    IN(as_indexer_q_params, positions, "T", "i64"),
    OUT_ROW_OF_ALL(as_indexer_q_params, q_row, "T,J,d", "row"),
    OUT_CODES(as_indexer_q_params, q, "T,J,bytes", "u8", "bytes"),
    OUT_CODES(as_indexer_q_params, q_scale, "T,J,4", "u8", "bytes"),
    OUT_CODES(as_indexer_q_params, weights, "T,J", "f32", "weights"),
};
static const as_param_info kIndexerQFields[] = {
    ROPE(as_indexer_q_params, rope),
    INTEGER(as_indexer_q_params, format),
    INTEGER(as_indexer_q_params, hadamard),
    INTEGER(as_indexer_q_params, rows_given),
    LATER_INTEGER(as_indexer_q_params, scale_floor),
    LATER_INTEGER(as_indexer_q_params, fp4_rule),
};

static const as_tap_info kIndexerLogits[] = {
    IN(as_indexer_logits_params, q, "T,J,bytes", "u8"),
    IN(as_indexer_logits_params, q_scale, "T,J,4", "u8"),
    IN(as_indexer_logits_params, weights, "T,J", "f32"),
    IN_CACHE(as_indexer_logits_params, cache, "rows,bytes"),
    IN(as_indexer_logits_params, table, "R,C", "i32"),
    IN(as_indexer_logits_params, token_to_req, "T", "i32"),
    IN(as_indexer_logits_params, lens, "T", "i32"),
    OUT_LENS(as_indexer_logits_params, logits, "T,N", "f32", "scores", lens),
};
static const as_param_info kIndexerLogitsFields[] = {
    {"score_rule", AS_PARAM_INTEGER, 1,
     offsetof(as_indexer_logits_params, weights) + offsetof(as_tensor, reserved)},
};

static const as_tap_info kIndexerTopk[] = {
    IN_LENS(as_indexer_topk_params, logits, "T,N", "f32", lens),
    IN(as_indexer_topk_params, lens, "T", "i32"),
    OUT(as_indexer_topk_params, indices, "T,K", "i32", "topk"),
};

static const as_tap_info kTopkToSlots[] = {
    IN(as_topk_to_slots_params, indices, "T,K", "i32"),
    IN(as_topk_to_slots_params, table, "R,C", "i32"),
    IN(as_topk_to_slots_params, token_to_req, "T", "i32"),
    OUT(as_topk_to_slots_params, slots, "T,K", "i32", "exact"),
    OUT(as_topk_to_slots_params, lens, "T", "i32", "exact"),
};
static const as_param_info kTopkToSlotsFields[] = {
    INTEGER(as_topk_to_slots_params, rows_per_block),
};

static const as_tap_info kSparseAttention[] = {
    IN(as_sparse_attention_params, q, "T,H,D", "bf16"),
    IN_CACHE(as_sparse_attention_params, cache, "rows,bytes"),
    IN(as_sparse_attention_params, indices, "T,W", "i32"),
    IN(as_sparse_attention_params, topk_length, "T", "i32"),
    IN_CACHE(as_sparse_attention_params, extra_cache, "rows,bytes"),
    IN(as_sparse_attention_params, extra_indices, "T,K", "i32"),
    IN(as_sparse_attention_params, extra_topk_length, "T", "i32"),
    IN(as_sparse_attention_params, sinks, "H", "f32"),
    IN_OPTIONAL(as_sparse_attention_params, prefill, "T,2", "i32"),
    IN(as_sparse_attention_params, plan_rows, "T,2", "i32"),
    IN(as_sparse_attention_params, plan_splits, "X,5", "i32"),
    OUT(as_sparse_attention_params, o, "T,H,D", "bf16", "attention"),
    OUT(as_sparse_attention_params, lse, "T,H", "f32", "lse"),
};
static const as_param_info kSparseAttentionFields[] = {
    REAL(as_sparse_attention_params, scale),
};

static const as_tap_info kInverseRope[] = {
    IN(as_inverse_rope_params, o, "T,H,D", "bf16"),
    IN(as_inverse_rope_params, positions, "T", "i64"),
    OUT(as_inverse_rope_params, out, "T,H,D", "bf16", "row"),
    OUT_ROW_OF_ALL(as_inverse_rope_params, row, "T,H,D", "row"),
    OUT_CODES_OF_SOME(as_inverse_rope_params, codes, "T,H,D", "u8", "bytes"),
    OUT_CODES_OF_SOME(as_inverse_rope_params, scales, "T,H,D/128", "f32", "bytes"),
};
static const as_param_info kInverseRopeFields[] = {
    ROPE(as_inverse_rope_params, rope),
    LATER_INTEGER(as_inverse_rope_params, rows_given),
    LATER_INTEGER(as_inverse_rope_params, scale_floor),
};

static const as_tap_info kGroupedLinear[] = {
    IN(as_grouped_linear_params, x, "T,groups,in", "bf16|u8"),
    IN(as_grouped_linear_params, x_scale, "T,groups,in/128", "f32"),
    IN(as_grouped_linear_params, weight, "groups,out,in", "bf16|u8"),
    IN(as_grouped_linear_params, weight_scale, "groups,out/128,in/128", "f32"),
    OUT(as_grouped_linear_params, y, "T,groups,out", "bf16", "dense"),
};

static const as_tap_info kResidual[] = {
    IN(as_residual_params, h, "T,hidden", "bf16"),
    IN(as_residual_params, y, "T,hidden", "bf16"),
    OUT(as_residual_params, out, "T,hidden", "bf16", "row"),
};

static const as_tap_info kSample[] = {
    IN(as_sample_params, logits, "N,V", "f32"),
    OUT(as_sample_params, tokens, "N", "i32", "exact"),
};

static const as_tap_info kRopeKvInsert[] = {
    IN(as_rope_kv_insert_params, q, "T,H,D", "bf16"),
    IN(as_rope_kv_insert_params, k, "T,G,D", "bf16"),
    IN(as_rope_kv_insert_params, v, "T,G,V", "bf16"),
    IN(as_rope_kv_insert_params, q_weight, "D", "bf16"),
    IN(as_rope_kv_insert_params, k_weight, "D", "bf16"),
    IN(as_rope_kv_insert_params, positions, "T", "i64"),
    IN(as_rope_kv_insert_params, slots, "T", "i64"),
    IN_BOTH(as_rope_kv_insert_params, k_scale, v_scale, "scales", "f32"),
    IN(as_rope_kv_insert_params, wide_slots, "T", "i64"),
    OUT_OPTIONAL(as_rope_kv_insert_params, q_out, "T,H,D", "bf16", "row"),
    OUT_ROW(as_rope_kv_insert_params, k_row, "T,G,D", "row", slots),
    OUT_QUANTISED(as_rope_kv_insert_params, k_cache, "T,bytes", "bytes", slots),
    OUT_STORED(as_rope_kv_insert_params, v_cache, "T,bytes", "bytes", slots, v),
    OUT_QUANTISED(as_rope_kv_insert_params, k_wide, "T,bytes", "bytes", wide_slots),
    OUT_STORED(as_rope_kv_insert_params, v_wide, "T,bytes", "bytes", wide_slots, v),
};
static const as_param_info kRopeKvInsertFields[] = {
    ROPE(as_rope_kv_insert_params, rope),
    REAL(as_rope_kv_insert_params, eps),
    INTEGER(as_rope_kv_insert_params, style),
    INTEGER(as_rope_kv_insert_params, weight_plus_one),
    INTEGER(as_rope_kv_insert_params, rows_given),
};

static const as_tap_info kPagedAttention[] = {
    IN(as_paged_attention_params, q, "T,H,D", "bf16"),
    IN_CACHE(as_paged_attention_params, k_cache, "rows,bytes"),
    IN_CACHE(as_paged_attention_params, v_cache, "rows,bytes"),
    IN(as_paged_attention_params, table, "R,C", "i32"),
    IN(as_paged_attention_params, token_to_req, "T", "i32"),
    IN(as_paged_attention_params, positions, "T", "i64"),
    IN(as_paged_attention_params, seq_lens, "R", "i32"),
    IN_BOTH(as_paged_attention_params, sinks, alibi_slopes, "H", "f32"),
    IN(as_paged_attention_params, first_rows, "R", "i32"),
    IN(as_paged_attention_params, position_bias, "buckets,H", "f32"),
    IN_BOTH(as_paged_attention_params, mask_code, score_code, "code,2", "f64"),
    IN_BOTH(as_paged_attention_params, k_scale, v_scale, "scales", "f32"),
    IN(as_paged_attention_params, places, "T", "i64"),
    IN_BOTH(as_paged_attention_params, query_starts, row_starts, "R", "i32"),
    IN_CACHE(as_paged_attention_params, k_wide, "rows,bytes"),
    IN_CACHE(as_paged_attention_params, v_wide, "rows,bytes"),
    IN(as_paged_attention_params, wide_table, "R,C", "i32"),
    OUT(as_paged_attention_params, o, "T,H,V", "bf16", "attention"),
    OUT(as_paged_attention_params, lse, "T,H", "f32", "lse"),
};
static const as_param_info kPagedAttentionFields[] = {
    REAL(as_paged_attention_params, scale),
    REAL(as_paged_attention_params, soft_cap),
    INTEGER(as_paged_attention_params, causal),
    INTEGER(as_paged_attention_params, window),
    INTEGER(as_paged_attention_params, num_splits),
    LATER_INTEGER(as_paged_attention_params, chunk),
    LATER_INTEGER(as_paged_attention_params, bias_distance),
    LATER_INTEGER(as_paged_attention_params, form),
    LATER_INTEGER(as_paged_attention_params, wide_tokens),
};

static const as_tap_info kVarlenAttention[] = {
    IN(as_varlen_attention_params, q, "T,H,D", "bf16"),
    IN(as_varlen_attention_params, k, "keys,G,D", "bf16"),
    IN(as_varlen_attention_params, v, "keys,G,V", "bf16"),
    IN_BOTH(as_varlen_attention_params, cu_seqlens, cu_seqlens_k, "starts", "i32"),
    IN(as_varlen_attention_params, alibi_slopes, "H", "f32"),
    IN_BOTH(as_varlen_attention_params, mask_code, score_code, "code,2", "f64"),
    IN(as_varlen_attention_params, tiles, "sequences,maps,blocks,tiles", "u8"),
    IN(as_varlen_attention_params, token_to_req, "T", "i32"),
    IN(as_varlen_attention_params, position_bias, "buckets,H", "f32"),
    OUT(as_varlen_attention_params, o, "T,H,V", "bf16", "attention"),
    OUT(as_varlen_attention_params, lse, "T,H", "f32", "lse"),
};
static const as_param_info kVarlenAttentionFields[] = {
    REAL(as_varlen_attention_params, scale),
    REAL(as_varlen_attention_params, soft_cap),
    INTEGER(as_varlen_attention_params, causal),
    INTEGER(as_varlen_attention_params, window_left),
    INTEGER(as_varlen_attention_params, window_right),
    LATER_INTEGER(as_varlen_attention_params, bias_distance),
};

static const as_tap_info kLocalBatch[] = {
    IN(as_local_batch_params, tables, "chunked,R,C", "i32"),
    IN(as_local_batch_params, query_start_loc, "R", "i32"),
    IN(as_local_batch_params, seq_lens, "R", "i32"),
    IN(as_local_batch_params, token_to_req, "T", "i32"),
    OUT(as_local_batch_params, token_to_seq, "T", "i32", "exact"),
    OUT(as_local_batch_params, local_positions, "T", "i64", "exact"),
    OUT(as_local_batch_params, local_query_start_loc, "L", "i32", "exact"),
    OUT(as_local_batch_params, local_seq_lens, "L", "i32", "exact"),
    OUT(as_local_batch_params, local_tables, "chunked,L,P", "i32", "exact"),
};
static const as_param_info kLocalBatchFields[] = {
    INTEGER(as_local_batch_params, chunk),
    INTEGER(as_local_batch_params, block_size),
};

static const as_tap_info kCrossBatch[] = {
    IN(as_cross_batch_params, positions, "T", "i64"),
    IN(as_cross_batch_params, token_to_req, "T", "i32"),
    IN(as_cross_batch_params, source_lens, "R", "i32"),
    IN(as_cross_batch_params, slots, "G,T", "i64"),
    OUT_BOTH(as_cross_batch_params, source_to_req, target_to_req, "T", "i32", "exact"),
    OUT_BOTH(as_cross_batch_params, source_slots, target_slots, "T", "i64", "exact"),
};
static const as_param_info kCrossBatchFields[] = {
    INTEGER(as_cross_batch_params, group),
};

static const as_tap_info kAttentionPlan[] = {
    IN(as_attention_plan_params, window_lens, "T", "i32"),
    IN(as_attention_plan_params, c4_lens, "T", "i32"),
    IN(as_attention_plan_params, c128_lens, "T", "i32"),
    OUT(as_attention_plan_params, rows, "Y,T,2", "i32", "exact"),
    OUT(as_attention_plan_params, splits, "Y,X,5", "i32", "exact"),
    OUT(as_attention_plan_params, counts, "Y,2", "i32", "exact"),
};
static const as_param_info kAttentionPlanFields[] = {
    INTEGER(as_attention_plan_params, top_k),
    INTEGER(as_attention_plan_params, heads),
    INTEGER(as_attention_plan_params, multiprocessors),
    INTEGER(as_attention_plan_params, rule),
};

static const as_tap_info kMlaQAbsorb[] = {
    IN(as_mla_q_absorb_params, q_raw, "T,H,nope+rope", "bf16"),
    IN(as_mla_q_absorb_params, kv_b, "H,nope+value,latent", "bf16"),
    IN(as_mla_q_absorb_params, positions, "T", "i64"),
    OUT(as_mla_q_absorb_params, q, "T,H,latent+rope", "bf16", "dense"),
};
static const as_param_info kMlaQAbsorbFields[] = {
    ROPE(as_mla_q_absorb_params, rope),
};

static const as_tap_info kMlaKvInsert[] = {
    IN(as_mla_kv_insert_params, kv, "T,latent", "bf16"),
    IN(as_mla_kv_insert_params, qkv, "T,qkv", "bf16"),
    IN(as_mla_kv_insert_params, positions, "T", "i64"),
    IN(as_mla_kv_insert_params, slots, "T", "i64"),
    OUT_ROW(as_mla_kv_insert_params, kv_row, "T,latent+rope", "row", slots),
    OUT_QUANTISED(as_mla_kv_insert_params, cache, "T,bytes", "bytes", slots),
};
static const as_param_info kMlaKvInsertFields[] = {
    ROPE(as_mla_kv_insert_params, rope),
    INTEGER(as_mla_kv_insert_params, rows_given),
    INTEGER(as_mla_kv_insert_params, scale_rule),
};

static const as_tap_info kIndexQuery[] = {
    IN(as_index_query_params, q_raw, "T,J,d", "bf16"),
    IN(as_index_query_params, weights_raw, "T,J", "f32"),
    IN(as_index_query_params, positions, "T", "i64"),
    OUT_ROW_OF_ALL(as_index_query_params, q_row, "T,J,d", "row"),
    OUT_CODES(as_index_query_params, q, "T,J,bytes", "u8", "bytes"),
    OUT_CODES(as_index_query_params, weights, "T,J", "f32", "weights"),
};
static const as_param_info kIndexQueryFields[] = {
    ROPE(as_index_query_params, rope),
    INTEGER(as_index_query_params, hadamard),
    INTEGER(as_index_query_params, rows_given),
    INTEGER(as_index_query_params, scale_rule),
};

static const as_tap_info kIndexKeyInsert[] = {
    IN(as_index_key_insert_params, k, "T,d", "bf16"),
    IN(as_index_key_insert_params, weight, "d", "bf16"),
    IN(as_index_key_insert_params, bias, "d", "bf16"),
    IN(as_index_key_insert_params, positions, "T", "i64"),
    IN(as_index_key_insert_params, slots, "T", "i64"),
    OUT_ROW(as_index_key_insert_params, row, "T,d", "row", slots),
    OUT_QUANTISED(as_index_key_insert_params, cache, "T,bytes", "bytes", slots),
};
static const as_param_info kIndexKeyInsertFields[] = {
    ROPE(as_index_key_insert_params, rope),
    REAL(as_index_key_insert_params, eps),
    INTEGER(as_index_key_insert_params, hadamard),
    INTEGER(as_index_key_insert_params, rows_given),
    INTEGER(as_index_key_insert_params, scale_rule),
};

static const as_tap_info kMlaAttention[] = {
    IN(as_mla_attention_params, q, "T,H,latent+rope", "bf16"),
    IN_CACHE(as_mla_attention_params, cache, "rows,bytes"),
    IN(as_mla_attention_params, table, "R,C", "i32"),
    IN(as_mla_attention_params, token_to_req, "T", "i32"),
    IN(as_mla_attention_params, positions, "T", "i64"),
    IN(as_mla_attention_params, seq_lens, "R", "i32"),
    OUT(as_mla_attention_params, o, "T,H,latent", "bf16", "attention"),
    OUT(as_mla_attention_params, lse, "T,H", "f32", "lse"),
};
static const as_param_info kMlaAttentionFields[] = {
    REAL(as_mla_attention_params, scale),
};

static const as_tap_info kSparseMlaAttention[] = {
    IN(as_sparse_mla_attention_params, q, "T,H,latent+rope", "bf16"),
    IN_CACHE(as_sparse_mla_attention_params, cache, "rows,bytes"),
    IN(as_sparse_mla_attention_params, indices, "T,K", "i32"),
    IN(as_sparse_mla_attention_params, topk_length, "T", "i32"),
    OUT(as_sparse_mla_attention_params, o, "T,H,latent", "bf16", "attention"),
    OUT(as_sparse_mla_attention_params, lse, "T,H", "f32", "lse"),
};
static const as_param_info kSparseMlaAttentionFields[] = {
    REAL(as_sparse_mla_attention_params, scale),
};

static const as_tap_info kMlaVUp[] = {
    IN(as_mla_v_up_params, o, "T,H,latent", "bf16"),
    IN(as_mla_v_up_params, kv_b, "H,nope+value,latent", "bf16"),
    OUT(as_mla_v_up_params, y, "T,H,value", "bf16", "dense"),
};

static const as_tap_info kDraftNorm[] = {
    IN(as_draft_norm_params, hidden, "T,hidden", "bf16"),
    IN(as_draft_norm_params, embedding, "V,hidden", "bf16"),
    IN(as_draft_norm_params, tokens, "T", "i32"),
    IN(as_draft_norm_params, positions, "T", "i64"),
    IN(as_draft_norm_params, h_weight, "hidden", "bf16"),
    IN(as_draft_norm_params, e_weight, "hidden", "bf16"),
    OUT(as_draft_norm_params, h, "T,hidden", "bf16", "row"),
    OUT(as_draft_norm_params, e, "T,hidden", "bf16", "row"),
};
static const as_param_info kDraftNormFields[] = {
    REAL(as_draft_norm_params, eps),
};

static const as_tap_info kExchangeRows[] = {
    IN(as_exchange_rows_params, selected, "T,K", "i32"),
    IN(as_exchange_rows_params, places, "T,K", "i32"),
    OUT(as_exchange_rows_params, slots, "T,K", "i32", "exact"),
    IN_CACHE(as_exchange_rows_params, fresh, "rows,bytes"),
    IN(as_exchange_rows_params, fresh_from, "T", "i64"),
    OUT_CACHE(as_exchange_rows_params, pages, "T,bytes", "bytes", pages_to),
    IN(as_exchange_rows_params, pages_to, "T", "i64"),
    IN_CACHE(as_exchange_rows_params, missed, "rows,bytes"),
    IN(as_exchange_rows_params, missed_from, "M", "i64"),
    OUT_CACHE(as_exchange_rows_params, pool, "M,bytes", "bytes", pool_to),
    IN(as_exchange_rows_params, pool_to, "M", "i64"),
};

static const as_tap_info kSwapOut[] = {
    IN_CACHE(as_swap_out_params, blocks, "blocks,bytes"),
    IN(as_swap_out_params, from, "M", "i64"),
    OUT(as_swap_out_params, staged, "M,bytes", "u8", "bytes"),
};

static const as_tap_info kSwapIn[] = {
    IN(as_swap_in_params, staged, "M,bytes", "u8"),
    IN(as_swap_in_params, to, "M", "i64"),
    OUT_CACHE(as_swap_in_params, blocks, "M,bytes", "bytes", to),
};

/* The struct of each op: AS_OP_WO_B_struct. */
#define NAME_STRUCT(id, number, params, function) typedef params id##_struct;
AS_FOR_EACH_DECISION(NAME_STRUCT)
AS_FOR_EACH_KERNEL(NAME_STRUCT)
AS_FOR_EACH_HELPER(NAME_STRUCT)

/* OP expands its arguments (EVERY and the like are several of them) before OP_ENTRY takes them.
 * first_size: bytes of the op's struct when it was released, which stay when it grows. */
#define COUNT(list) (uint32_t)(sizeof(list) / sizeof((list)[0]))
#define FIELDS(list) COUNT(list), list
#define NO_FIELDS 0, NULL
#define OP(...) OP_ENTRY(__VA_ARGS__)
#define OP_ENTRY(id, name, summary, phase, layers, role, traits, first_size, taps, num_fields,    \
                 fields)                                                                          \
  {                                                                                               \
    name, summary, id, phase, layers, role, traits, sizeof(id##_struct), first_size, COUNT(taps), \
        num_fields, taps, fields                                                                  \
  }

#define BEFORE AS_PHASE_BEFORE, AS_LAYER_ANY
#define AFTER AS_PHASE_AFTER, AS_LAYER_ANY
#define ANY AS_PHASE_LAYER, AS_LAYER_ANY
#define EVERY AS_PHASE_LAYER, AS_LAYER_DEEPSEEK_V4
#define COMPRESSED AS_PHASE_LAYER, (AS_LAYER_C4A | AS_LAYER_C128A)
#define C4A AS_PHASE_LAYER, AS_LAYER_C4A
#define DENSE AS_PHASE_LAYER, AS_LAYER_DENSE
#define LATENT AS_PHASE_LAYER, (AS_LAYER_DEEPSEEK_V4 | AS_LAYER_MLA | AS_LAYER_DSA)
#define INDEXED AS_PHASE_LAYER, (AS_LAYER_C4A | AS_LAYER_DSA)
#define O_PROJECTED AS_PHASE_LAYER, (AS_LAYER_DENSE | AS_LAYER_MLA | AS_LAYER_DSA)
#define ABSORBED AS_PHASE_LAYER, (AS_LAYER_MLA | AS_LAYER_DSA)
#define MLA AS_PHASE_LAYER, AS_LAYER_MLA
#define DSA AS_PHASE_LAYER, AS_LAYER_DSA
#define DRAFT AS_PHASE_LAYER, AS_LAYER_DRAFT
#define HELPER AS_PHASE_NONE, 0

#define DECISION AS_ROLE_METADATA, AS_BY_ENGINE
#define METADATA AS_ROLE_METADATA, 0
#define INDEX_LIST AS_ROLE_INDEX_LIST, 0
#define NORM AS_ROLE_NORM, AS_FUSES
#define PROJECTION AS_ROLE_PROJECTION, 0
#define TURNED_PROJECTION AS_ROLE_PROJECTION, AS_ROTATES
#define STATE_WRITE AS_ROLE_CACHE_WRITE, AS_FUSES
#define ROW_WRITE AS_ROLE_CACHE_WRITE, (AS_ROTATES | AS_QUANTISES | AS_FUSES)
#define QUERY AS_ROLE_QUERY, (AS_ROTATES | AS_QUANTISES | AS_FUSES)
#define SCORE AS_ROLE_SCORE, 0
#define SELECT AS_ROLE_SELECT, 0
#define SLOT_LIST AS_ROLE_INDEX_LIST, AS_FUSES
#define ATTENTION AS_ROLE_ATTENTION, 0
#define MERGE AS_ROLE_ATTENTION, AS_FUSES
#define ROTATION AS_ROLE_ROTATION, (AS_ROTATES | AS_QUANTISES | AS_FUSES)
#define RESIDUAL AS_ROLE_RESIDUAL, AS_FUSES
#define SAMPLE AS_ROLE_SAMPLE, 0
#define COPY AS_ROLE_COPY, 0

/* By place in the list: as_op_index() of the id. */
static const as_op_info kOps[AS_NUM_OPS] = {
    OP(AS_OP_SCHEDULE, "schedule", "Which request advances by how many tokens, and from where.",
       BEFORE, DECISION, 808, kSchedule, FIELDS(kScheduleFields)),
    OP(AS_OP_BLOCK_TABLES, "block_tables", "New blocks join the tables that the other ops read.",
       BEFORE, DECISION, 800, kBlockTables, NO_FIELDS),
    OP(AS_OP_SLOT_MAPPING, "slot_mapping", "The slot each new row goes to, per group.", BEFORE,
       METADATA, 720, kSlotMapping, FIELDS(kSlotMappingFields)),
    OP(AS_OP_SWA_INDEX, "swa_index", "Slots of each token's sliding window.", AS_PHASE_BEFORE,
       AS_LAYER_DEEPSEEK_V4, INDEX_LIST, 544, kSwaIndex, FIELDS(kSwaIndexFields)),
    OP(AS_OP_C128_INDEX, "c128_index", "Slots of all C128A entries a token sees.", AS_PHASE_BEFORE,
       AS_LAYER_C128A, INDEX_LIST, 456, kC128Index, FIELDS(kC128IndexFields)),
    OP(AS_OP_ATTN_NORM, "attn_norm", "RMS norm of the hidden state.", ANY, NORM, 280, kRmsNorm,
       FIELDS(kRmsNormFields)),
    OP(AS_OP_Q_KV_A_PROJ, "q_kv_a_proj", "Low-rank query and the latent KV row.", LATENT,
       PROJECTION, 360, kLinear, NO_FIELDS),
    OP(AS_OP_Q_KV_NORM, "q_kv_norm", "RMS norms of the low-rank query and the KV row.", LATENT,
       NORM, 456, kQKvNorm, FIELDS(kQKvNormFields)),
    OP(AS_OP_Q_B_PROJ, "q_b_proj", "Queries of all heads.", LATENT, PROJECTION, 360, kLinear,
       NO_FIELDS),
    OP(AS_OP_Q_ROPE_KV_INSERT, "q_rope_kv_insert",
       "Per-head q norm and RoPE; KV RoPE, FP8 quantisation, insertion into the SWA cache.", EVERY,
       ROW_WRITE, 792, kQRopeKvInsert, FIELDS(kQRopeKvInsertFields)),
    OP(AS_OP_COMPRESSOR_PROJ, "compressor_proj", "Values and gates of the compressor.", COMPRESSED,
       PROJECTION, 360, kLinear, NO_FIELDS),
    OP(AS_OP_COMPRESSOR_STATE, "compressor_state", "Saves the compressor's state row.", COMPRESSED,
       STATE_WRITE, 472, kCompressorState, FIELDS(kCompressorStateFields)),
    OP(AS_OP_COMPRESS_INSERT, "compress_insert",
       "Pools a window of state rows into one entry, norm, RoPE, FP8, insertion.", COMPRESSED,
       ROW_WRITE, 904, kCompressInsert, FIELDS(kCompressInsertFields)),
    OP(AS_OP_INDEXER_COMPRESSOR_PROJ, "indexer_compressor_proj",
       "Values and gates of the indexer's compressor.", C4A, PROJECTION, 360, kLinear, NO_FIELDS),
    OP(AS_OP_INDEXER_COMPRESSOR_STATE, "indexer_compressor_state",
       "Saves the indexer compressor's state row.", C4A, STATE_WRITE, 472, kCompressorState,
       FIELDS(kCompressorStateFields)),
    OP(AS_OP_INDEXER_COMPRESS_INSERT, "indexer_compress_insert",
       "Pools state rows into one index key, quantises and inserts it.", C4A, ROW_WRITE, 904,
       kCompressInsert, FIELDS(kCompressInsertFields)),
    OP(AS_OP_INDEXER_Q_PROJ, "indexer_q_proj", "Index queries of all index heads.", INDEXED,
       PROJECTION, 360, kLinear, NO_FIELDS),
    OP(AS_OP_INDEXER_Q, "indexer_q", "RoPE and quantisation of index queries, head weights.", C4A,
       QUERY, 776, kIndexerQ, FIELDS(kIndexerQFields)),
    OP(AS_OP_INDEXER_WEIGHTS_PROJ, "indexer_weights_proj", "Raw weights of the index heads.", C4A,
       PROJECTION, 360, kLinear, NO_FIELDS),
    OP(AS_OP_INDEXER_LOGITS, "indexer_logits", "Score of every visible entry.", INDEXED, SCORE, 728,
       kIndexerLogits, FIELDS(kIndexerLogitsFields)),
    OP(AS_OP_INDEXER_TOPK, "indexer_topk", "The k best entries.", INDEXED, SELECT, 272,
       kIndexerTopk, NO_FIELDS),
    OP(AS_OP_TOPK_TO_SLOTS, "topk_to_slots", "Selected entries as slots.", INDEXED, SLOT_LIST, 456,
       kTopkToSlots, FIELDS(kTopkToSlotsFields)),
    OP(AS_OP_SPARSE_ATTENTION, "sparse_attention",
       "Attention over the window and the selected entries, with sink.", EVERY, ATTENTION, 928,
       kSparseAttention, FIELDS(kSparseAttentionFields)),
    OP(AS_OP_INVERSE_ROPE, "inverse_rope",
       "Undoes the rotation of the values; quantises them for a wo_a in FP8.", EVERY, ROTATION, 400,
       kInverseRope, FIELDS(kInverseRopeFields)),
    OP(AS_OP_WO_A, "wo_a", "Grouped low-rank output projection.", EVERY, PROJECTION, 272,
       kGroupedLinear, NO_FIELDS),
    OP(AS_OP_WO_B, "wo_b", "Output projection to the hidden size.", EVERY, PROJECTION, 360, kLinear,
       NO_FIELDS),
    OP(AS_OP_RESIDUAL, "residual", "Adds the attention output to the hidden state.", ANY, RESIDUAL,
       272, kResidual, NO_FIELDS),
    OP(AS_OP_FINAL_NORM, "final_norm", "RMS norm of the rows to sample from.", AFTER, NORM, 280,
       kRmsNorm, FIELDS(kRmsNormFields)),
    OP(AS_OP_LM_HEAD, "lm_head", "Logits over the vocabulary, tied to the embedding.", AFTER,
       PROJECTION, 360, kLinear, NO_FIELDS),
    OP(AS_OP_SAMPLE, "sample", "Greedy choice of the next token.", AFTER, SAMPLE, 184, kSample,
       NO_FIELDS),
    OP(AS_OP_ROPE_KV_INSERT, "rope_kv_insert",
       "Norm and RoPE of queries and keys; keys and values into their caches.", DENSE, ROW_WRITE,
       1160, kRopeKvInsert, FIELDS(kRopeKvInsertFields)),
    OP(AS_OP_PAGED_ATTENTION, "paged_attention",
       "Attention over the pages of a request: causal, window, soft cap, ALiBi, sink.", DENSE,
       ATTENTION, 952, kPagedAttention, FIELDS(kPagedAttentionFields)),
    OP(AS_OP_Q_PROJ, "q_proj", "Queries of all heads.", DENSE, PROJECTION, 360, kLinear, NO_FIELDS),
    OP(AS_OP_K_PROJ, "k_proj", "Keys of all KV heads.", DENSE, PROJECTION, 360, kLinear, NO_FIELDS),
    OP(AS_OP_V_PROJ, "v_proj", "Values of all KV heads.", DENSE, PROJECTION, 360, kLinear,
       NO_FIELDS),
    OP(AS_OP_O_PROJ, "o_proj", "Output of all heads to the hidden size.", O_PROJECTED, PROJECTION,
       360, kLinear, NO_FIELDS),
    OP(AS_OP_LOCAL_BATCH, "local_batch",
       "The step as a batch of sequences that end with their chunks.", AS_PHASE_BEFORE,
       AS_LAYER_DENSE, METADATA, 808, kLocalBatch, FIELDS(kLocalBatchFields)),
    OP(AS_OP_ATTENTION_PLAN, "attention_plan",
       "Into which splits attention cuts the lists of each token.", AS_PHASE_BEFORE,
       AS_LAYER_DEEPSEEK_V4, METADATA, 552, kAttentionPlan, FIELDS(kAttentionPlanFields)),
    OP(AS_OP_INDEX_K_PROJ, "index_k_proj", "The index key of a token.", DSA, PROJECTION, 360,
       kLinear, NO_FIELDS),
    OP(AS_OP_INDEX_WEIGHTS_PROJ, "index_weights_proj", "Raw weights of the index heads, in fp32.",
       DSA, PROJECTION, 360, kLinear, NO_FIELDS),
    OP(AS_OP_MLA_Q_ABSORB, "mla_q_absorb",
       "Queries into latent space, through the keys' part of kv_b_proj; RoPE of their rest.",
       ABSORBED, TURNED_PROJECTION, 488, kMlaQAbsorb, FIELDS(kMlaQAbsorbFields)),
    OP(AS_OP_MLA_KV_INSERT, "mla_kv_insert",
       "RoPE of the shared key; the latent row, FP8 or bf16, into its cache.", ABSORBED, ROW_WRITE,
       688, kMlaKvInsert, FIELDS(kMlaKvInsertFields)),
    OP(AS_OP_INDEX_QUERY, "index_query",
       "RoPE, Hadamard transform and FP8 of index queries, head weights.", DSA, QUERY, 680,
       kIndexQuery, FIELDS(kIndexQueryFields)),
    OP(AS_OP_INDEX_KEY_INSERT, "index_key_insert",
       "LayerNorm, RoPE, Hadamard transform and FP8 of a token's index key, insertion.", DSA,
       ROW_WRITE, 792, kIndexKeyInsert, FIELDS(kIndexKeyInsertFields)),
    OP(AS_OP_MLA_ATTENTION, "mla_attention", "Attention over all latent rows of a request.", MLA,
       ATTENTION, 736, kMlaAttention, FIELDS(kMlaAttentionFields)),
    OP(AS_OP_SPARSE_MLA_ATTENTION, "sparse_mla_attention",
       "Attention over the latent rows of selected tokens.", DSA, ATTENTION, 560,
       kSparseMlaAttention, FIELDS(kSparseMlaAttentionFields)),
    OP(AS_OP_MLA_V_UP, "mla_v_up",
       "Latent outputs to values of heads, through the values' part of kv_b_proj.", ABSORBED,
       PROJECTION, 272, kMlaVUp, NO_FIELDS),
    OP(AS_OP_DRAFT_NORM, "draft_norm",
       "RMS norms of the hidden state and of the next token's embedding.", DRAFT, NORM, 720,
       kDraftNorm, FIELDS(kDraftNormFields)),
    OP(AS_OP_DRAFT_H_PROJ, "draft_h_proj", "The hidden state's part of the draft layer's input.",
       DRAFT, PROJECTION, 360, kLinear, NO_FIELDS),
    OP(AS_OP_DRAFT_E_PROJ, "draft_e_proj", "The next token's part of the draft layer's input.",
       DRAFT, PROJECTION, 360, kLinear, NO_FIELDS),
    OP(AS_OP_DRAFT_SUM, "draft_sum", "Adds both parts to the hidden state of the draft layer.",
       DRAFT, RESIDUAL, 272, kResidual, NO_FIELDS),
    OP(AS_OP_VARLEN_ATTENTION, "varlen_attention",
       "Attention of packed sequences without a cache: both ways, windows, soft cap, ALiBi.", DENSE,
       ATTENTION, 744, kVarlenAttention, FIELDS(kVarlenAttentionFields)),
    OP(AS_OP_EXCHANGE_ROWS, "exchange_rows",
       "New rows back to their pages in host memory, missed ones into the device's pool.", INDEXED,
       COPY, 1040, kExchangeRows, NO_FIELDS),
    OP(AS_OP_CROSS_BATCH, "cross_batch", "Which tokens are source, and which the decoder's.",
       AS_PHASE_BEFORE, AS_LAYER_DENSE, METADATA, 720, kCrossBatch, FIELDS(kCrossBatchFields)),
    OP(AS_OP_MEMORY_NORM, "memory_norm", "RMS norm of the source that cross attention sees.", DENSE,
       NORM, 288, kRmsNorm, FIELDS(kRmsNormFields)),
    OP(AS_OP_SWAP_OUT, "swap_out", "Blocks of preempted requests, for host memory to keep.", BEFORE,
       COPY, 288, kSwapOut, NO_FIELDS),
    OP(AS_OP_SWAP_IN, "swap_in", "Blocks that host memory kept, into blocks of their requests.",
       BEFORE, COPY, 288, kSwapIn, NO_FIELDS),
    OP(AS_OP_MERGE_STATES, "merge_states", "Attention over two disjoint sets of entries as one.",
       HELPER, MERGE, 544, kMergeStates, FIELDS(kMergeStatesFields)),
    OP(AS_OP_GATHER_ROWS, "gather_rows", "Values of cache rows, by slot.", HELPER, COPY, 288,
       kGatherRows, NO_FIELDS),
    OP(AS_OP_COPY_BLOCKS, "copy_blocks", "Blocks copied or exchanged by pairs of ids.", HELPER,
       COPY, 280, kCopyBlocks, FIELDS(kCopyBlocksFields)),
    OP(AS_OP_WORKSPACE_ATTENTION, "workspace_attention",
       "Sparse attention over rows gathered before.", HELPER, ATTENTION, 632, kWorkspaceAttention,
       FIELDS(kWorkspaceAttentionFields)),
    OP(AS_OP_INVERSE_ROPE_QUANTISE, "inverse_rope_quantise",
       "Undoes the rotation of the values and quantises them to FP8.", HELPER, ROTATION, 488,
       kInverseRopeQuantise, FIELDS(kInverseRopeQuantiseFields)),
    OP(AS_OP_FP8_LINEAR, "fp8_linear", "Projection of FP8 inputs with block scales.", HELPER,
       PROJECTION, 448, kFp8Linear, NO_FIELDS),
    OP(AS_OP_SEQUENCE_TABLE, "sequence_table",
       "Starts, lengths, blocks, owners and positions of a batch of sequences.", HELPER, METADATA,
       632, kSequenceTable, FIELDS(kSequenceTableFields)),
    OP(AS_OP_PAGE_INDICES, "page_indices", "Blocks of all sequences one after another.", HELPER,
       METADATA, 456, kPageIndices, FIELDS(kPageIndicesFields)),
    OP(AS_OP_COMPACT_TABLES, "compact_tables", "Block tables without their holes.", HELPER,
       METADATA, 456, kCompactTables, FIELDS(kCompactTablesFields)),
    OP(AS_OP_PAD_ROWS, "pad_rows", "Rows of different length as a rectangle.", HELPER, METADATA,
       280, kPadRows, FIELDS(kPadRowsFields)),
    OP(AS_OP_CONVERT_ROWS, "convert_rows", "Rows of keys or values in another format.", HELPER,
       COPY, 480, kConvertRows, NO_FIELDS),
};

const as_op_info* as_op_at(int32_t index) {
  return index >= 0 && index < AS_NUM_OPS ? &kOps[index] : NULL;
}

const as_op_info* as_op_find(int32_t id) { return as_op_at(as_op_index(id)); }

int32_t as_op_by_name(const char* name) {
  int32_t i;
  for (i = 0; i < AS_NUM_OPS; ++i) {
    if (strcmp(kOps[i].name, name) == 0) return kOps[i].id;
  }
  return -1;
}

int32_t as_step_op_by_name(const char* name) {
  const int32_t id = as_op_by_name(name);
  return id < AS_OP_COUNT ? id : -1;
}
