/* Taps and numbers of the ops that serving code needs around the others, for op_table.c. */
#ifndef ATTNSCOPE_KERNELS_PARAMS_HELPER_TAPS_H
#define ATTNSCOPE_KERNELS_PARAMS_HELPER_TAPS_H

#include "kernels/params/helper_params.h"
#include "kernels/params/op_table.h"
#include "kernels/params/tap_macros.h"

static const as_tap_info kMergeStates[] = {
    IN(as_merge_states_params, a, "T,H,D", "bf16|f32"),
    IN(as_merge_states_params, lse_a, "T,H", "f32"),
    IN(as_merge_states_params, b, "T,H,D", "bf16|f32"),
    IN(as_merge_states_params, lse_b, "T,H", "f32"),
    OUT(as_merge_states_params, out, "T,H,D", "bf16|f32", "row"),
    OUT(as_merge_states_params, lse, "T,H", "f32", "lse"),
};
static const as_param_info kMergeStatesFields[] = {
    INTEGER(as_merge_states_params, base_2),
};

static const as_tap_info kGatherRows[] = {
    IN_CACHE(as_gather_rows_params, cache, "rows,bytes"),
    IN(as_gather_rows_params, slots, "N", "i64"),
    OUT(as_gather_rows_params, out, "N,width", "bf16|f32", "bytes"),
};

static const as_tap_info kConvertRows[] = {
    IN_CACHE(as_convert_rows_params, from, "rows,bytes"),
    IN(as_convert_rows_params, slots, "N", "i64"),
    IN_BOTH(as_convert_rows_params, from_scale, to_scale, "scales", "f32"),
    OUT_CACHE(as_convert_rows_params, to, "N,bytes", "bytes", slots),
};

static const as_tap_info kCopyBlocks[] = {
    IN(as_copy_blocks_params, from, "B,bytes", "u8"),
    IN(as_copy_blocks_params, pairs, "N,2", "i64"),
    OUT(as_copy_blocks_params, to, "C,bytes", "u8", "bytes"),
};
static const as_param_info kCopyBlocksFields[] = {
    INTEGER(as_copy_blocks_params, exchange),
};

static const as_tap_info kWorkspaceAttention[] = {
    IN(as_workspace_attention_params, q, "T,H,D", "bf16"),
    IN(as_workspace_attention_params, rows, "N,D", "bf16"),
    IN(as_workspace_attention_params, indices, "T,K", "i32"),
    IN(as_workspace_attention_params, topk_length, "T", "i32"),
    IN(as_workspace_attention_params, sinks, "H", "f32"),
    OUT(as_workspace_attention_params, o, "T,H,D", "bf16", "attention"),
    OUT(as_workspace_attention_params, lse, "T,H", "f32", "lse"),
};
static const as_param_info kWorkspaceAttentionFields[] = {
    REAL(as_workspace_attention_params, scale),
};

static const as_tap_info kInverseRopeQuantise[] = {
    IN(as_inverse_rope_quantise_params, o, "T,H,D", "bf16"),
    IN(as_inverse_rope_quantise_params, positions, "T", "i64"),
    OUT(as_inverse_rope_quantise_params, codes, "T,H,D", "u8", "bytes"),
    OUT(as_inverse_rope_quantise_params, scales, "T,H,D/128", "f32", "bytes"),
};
static const as_param_info kInverseRopeQuantiseFields[] = {
    ROPE(as_inverse_rope_quantise_params, rope),
};

static const as_tap_info kFp8Linear[] = {
    IN(as_fp8_linear_params, x, "T,in", "u8"),
    IN(as_fp8_linear_params, x_scale, "T,in/128", "f32"),
    IN(as_fp8_linear_params, weight, "out,in", "u8"),
    IN(as_fp8_linear_params, weight_scale, "out/128,in/128", "f32"),
    OUT(as_fp8_linear_params, y, "T,out", "bf16|f32", "dense"),
};

static const as_tap_info kSequenceTable[] = {
    IN(as_sequence_table_params, query_lens, "sequences", "i32"),
    IN(as_sequence_table_params, computed, "sequences", "i32"),
    OUT(as_sequence_table_params, cu_seqlens, "sequences+1", "i32", "exact"),
    OUT(as_sequence_table_params, seq_lens, "sequences", "i32", "exact"),
    OUT(as_sequence_table_params, blocks, "sequences,columns", "i32", "exact"),
    OUT(as_sequence_table_params, token_to_seq, "tokens", "i32", "exact"),
    OUT(as_sequence_table_params, positions, "tokens", "i64", "exact"),
};
static const as_param_info kSequenceTableFields[] = {
    INTEGER(as_sequence_table_params, block_size),
};

static const as_tap_info kPageIndices[] = {
    IN(as_page_indices_params, table, "sequences,columns", "i32"),
    IN(as_page_indices_params, seq_lens, "sequences", "i32"),
    OUT(as_page_indices_params, indptr, "sequences+1", "i32", "exact"),
    OUT(as_page_indices_params, indices, "pages", "i32", "exact"),
    OUT(as_page_indices_params, last_page_len, "sequences", "i32", "exact"),
};
static const as_param_info kPageIndicesFields[] = {
    INTEGER(as_page_indices_params, block_size),
};

static const as_tap_info kCompactTables[] = {
    IN(as_compact_tables_params, table, "sequences,columns", "i32"),
    IN(as_compact_tables_params, lens, "sequences", "i32"),
    OUT(as_compact_tables_params, compact, "sequences,columns", "i32", "exact"),
    OUT(as_compact_tables_params, columns, "sequences,columns", "i32", "exact"),
    OUT(as_compact_tables_params, kept, "sequences", "i32", "exact"),
};
static const as_param_info kCompactTablesFields[] = {
    INTEGER(as_compact_tables_params, null_block),
};

static const as_tap_info kPadRows[] = {
    IN(as_pad_rows_params, values, "values", "i32"),
    IN(as_pad_rows_params, starts, "sequences+1", "i32"),
    OUT(as_pad_rows_params, rows, "sequences,columns", "i32", "exact"),
};
static const as_param_info kPadRowsFields[] = {
    INTEGER(as_pad_rows_params, pad),
};

#endif
