// The helper ops of the CUDA lane, as in ops.h.
#pragma once

#include "kernels/cuda/ops.h"
#include "kernels/params/helper_params.h"

namespace attnscope::cuda {

std::size_t workspace_bytes(const as_workspace_attention_params& p, const Gpu& gpu);

int merge_states(const as_merge_states_params& p, const Launch& launch);
int gather_rows(const as_gather_rows_params& p, const Launch& launch);
int copy_blocks(const as_copy_blocks_params& p, const Launch& launch);
int workspace_attention(const as_workspace_attention_params& p, const Launch& launch);
int inverse_rope_quantise(const as_inverse_rope_quantise_params& p, const Launch& launch);
int fp8_linear(const as_fp8_linear_params& p, const Launch& launch);
int sequence_table(const as_sequence_table_params& p, const Launch& launch);
int page_indices(const as_page_indices_params& p, const Launch& launch);
int compact_tables(const as_compact_tables_params& p, const Launch& launch);
int pad_rows(const as_pad_rows_params& p, const Launch& launch);
int convert_rows(const as_convert_rows_params& p, const Launch& launch);

}  // namespace attnscope::cuda
