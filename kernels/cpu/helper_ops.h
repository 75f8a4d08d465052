// The helper ops of the CPU lane, and the checks of their params that the CUDA lane shares. The
// params head has been checked by the caller.
#pragma once

#include "kernels/cpu/check.h"
#include "kernels/params/helper_params.h"
#include "kernels/params/lane.h"

namespace attnscope::cpu {

// Shapes, types, records and strides; with `values` also slots, positions and lengths.
bool check_params(const as_merge_states_params& p, bool values, Check& check);
bool check_params(const as_gather_rows_params& p, bool values, Check& check);
bool check_params(const as_workspace_attention_params& p, bool values, Check& check);
bool check_params(const as_inverse_rope_quantise_params& p, bool values, Check& check);
bool check_params(const as_fp8_linear_params& p, bool values, Check& check);
bool check_params(const as_sequence_table_params& p, bool values, Check& check);
bool check_params(const as_page_indices_params& p, bool values, Check& check);
bool check_params(const as_compact_tables_params& p, bool values, Check& check);
bool check_params(const as_pad_rows_params& p, bool values, Check& check);
bool check_params(const as_convert_rows_params& p, bool values, Check& check);
// Tensors may lie on different sides: each is looked at as if it were on the host.
bool check_params(const as_copy_blocks_params& p, bool values, Check& check);

void merge_states(const as_merge_states_params& p, const as_call* call, Check& check);
void gather_rows(const as_gather_rows_params& p, const as_call* call, Check& check);
void copy_blocks(const as_copy_blocks_params& p, const as_call* call, Check& check);
void workspace_attention(const as_workspace_attention_params& p, const as_call* call, Check& check);
void inverse_rope_quantise(const as_inverse_rope_quantise_params& p, const as_call* call,
                           Check& check);
void fp8_linear(const as_fp8_linear_params& p, const as_call* call, Check& check);
void sequence_table(const as_sequence_table_params& p, const as_call* call, Check& check);
void page_indices(const as_page_indices_params& p, const as_call* call, Check& check);
void compact_tables(const as_compact_tables_params& p, const as_call* call, Check& check);
void pad_rows(const as_pad_rows_params& p, const as_call* call, Check& check);
void convert_rows(const as_convert_rows_params& p, const as_call* call, Check& check);

}  // namespace attnscope::cpu
