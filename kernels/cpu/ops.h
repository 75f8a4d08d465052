// The ops of the CPU lane. Each checks its params completely before it writes a row of a cache; the
// params head has been checked by the caller.
#pragma once

#include <cstdint>

#include "kernels/cpu/check.h"
#include "kernels/params/attention_params.h"
#include "kernels/params/compressor_params.h"
#include "kernels/params/dense_params.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/lane.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/step_params.h"

namespace attnscope::cpu {

void slot_mapping(const as_slot_mapping_params& p, const as_call* call, Check& check);
void swa_index(const as_swa_index_params& p, const as_call* call, Check& check);
void c128_index(const as_c128_index_params& p, const as_call* call, Check& check);

void rms_norm(const as_rms_norm_params& p, const as_call* call, Check& check);
void q_kv_norm(const as_q_kv_norm_params& p, const as_call* call, Check& check);
void linear(const as_linear_params& p, const as_call* call, Check& check);
void grouped_linear(const as_grouped_linear_params& p, const as_call* call, Check& check);
void residual(const as_residual_params& p, const as_call* call, Check& check);

void q_rope_kv_insert(const as_q_rope_kv_insert_params& p, const as_call* call, Check& check);
void sparse_attention(const as_sparse_attention_params& p, const as_call* call, Check& check);
void inverse_rope(const as_inverse_rope_params& p, const as_call* call, Check& check);

void compressor_state(const as_compressor_state_params& p, const as_call* call, Check& check);
void compress_insert(const as_compress_insert_params& p, const as_call* call, Check& check);

void indexer_q(const as_indexer_q_params& p, const as_call* call, Check& check);
void indexer_logits(const as_indexer_logits_params& p, const as_call* call, Check& check);
void indexer_topk(const as_indexer_topk_params& p, const as_call* call, Check& check);
void topk_to_slots(const as_topk_to_slots_params& p, const as_call* call, Check& check);

void sample(const as_sample_params& p, const as_call* call, Check& check);

void rope_kv_insert(const as_rope_kv_insert_params& p, const as_call* call, Check& check);
void paged_attention(const as_paged_attention_params& p, const as_call* call, Check& check);

}  // namespace attnscope::cpu
