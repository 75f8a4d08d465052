// What the CUDA lane asks of its params before it touches memory. Shapes, types, records and
// strides always; values (slots, table entries, positions, lengths) where the tensors lie on the
// host. On the GPU they cannot be looked at without waiting: there, builds with
// ATTNSCOPE_CUDA_CHECKED stop a kernel at an index out of range.
#pragma once

#include "kernels/cpu/attention_plan_check.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/cross_batch_check.h"
#include "kernels/cpu/draft_check.h"
#include "kernels/cpu/local_batch_check.h"
#include "kernels/cpu/mla_checks.h"
#include "kernels/cpu/offload_check.h"
#include "kernels/cpu/paged_checks.h"
#include "kernels/params/attention_params.h"
#include "kernels/params/compressor_params.h"
#include "kernels/params/dense_params.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/step_params.h"

namespace attnscope::cuda {

// Tensors are marked as host memory whichever they are; `values` says whether they may be read.
bool check_params(const as_slot_mapping_params& p, bool values, cpu::Check& check);
bool check_params(const as_swa_index_params& p, bool values, cpu::Check& check);
bool check_params(const as_c128_index_params& p, bool values, cpu::Check& check);
bool check_params(const as_rms_norm_params& p, bool values, cpu::Check& check);
bool check_params(const as_q_kv_norm_params& p, bool values, cpu::Check& check);
bool check_params(const as_linear_params& p, bool values, cpu::Check& check);
bool check_params(const as_grouped_linear_params& p, bool values, cpu::Check& check);
bool check_params(const as_residual_params& p, bool values, cpu::Check& check);
bool check_params(const as_q_rope_kv_insert_params& p, bool values, cpu::Check& check);
bool check_params(const as_sparse_attention_params& p, bool values, cpu::Check& check);
bool check_params(const as_inverse_rope_params& p, bool values, cpu::Check& check);
bool check_params(const as_compressor_state_params& p, bool values, cpu::Check& check);
bool check_params(const as_compress_insert_params& p, bool values, cpu::Check& check);
bool check_params(const as_indexer_q_params& p, bool values, cpu::Check& check);
bool check_params(const as_indexer_logits_params& p, bool values, cpu::Check& check);
bool check_params(const as_indexer_topk_params& p, bool values, cpu::Check& check);
bool check_params(const as_topk_to_slots_params& p, bool values, cpu::Check& check);
bool check_params(const as_sample_params& p, bool values, cpu::Check& check);
using cpu::check_params;

// Base and strides of rows that kernels read 16 bytes at a time.
bool check_alignment(const char* name, const as_tensor& t, cpu::Check& check);
bool check_alignment(const char* name, const as_cache& c, cpu::Check& check);

}  // namespace attnscope::cuda
