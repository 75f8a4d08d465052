// All ops of both references. Each takes its params struct and the precision of the lane, and
// throws BadInput when a tensor does not fit.
#pragma once

#include "kernels/params/attention_params.h"
#include "kernels/params/compressor_params.h"
#include "kernels/params/dense_params.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/step_params.h"
#include "reference/precision.h"

namespace attnscope::reference {

void schedule(const as_schedule_params& p, const Precision& precision);
void block_tables(const as_block_tables_params& p, const Precision& precision);
void slot_mapping(const as_slot_mapping_params& p, const Precision& precision);
void swa_index(const as_swa_index_params& p, const Precision& precision);
void c128_index(const as_c128_index_params& p, const Precision& precision);

void rms_norm(const as_rms_norm_params& p, const Precision& precision);
void linear_bf16(const as_linear_params& p, const Precision& precision);
void linear_fp32(const as_linear_params& p, const Precision& precision);
void grouped_linear(const as_grouped_linear_params& p, const Precision& precision);
void residual(const as_residual_params& p, const Precision& precision);

void q_kv_norm(const as_q_kv_norm_params& p, const Precision& precision);
void q_rope_kv_insert(const as_q_rope_kv_insert_params& p, const Precision& precision);
void sparse_attention(const as_sparse_attention_params& p, const Precision& precision);
void inverse_rope(const as_inverse_rope_params& p, const Precision& precision);

void compressor_state(const as_compressor_state_params& p, const Precision& precision);
void compress_insert(const as_compress_insert_params& p, const Precision& precision);

void indexer_q(const as_indexer_q_params& p, const Precision& precision);
void indexer_logits(const as_indexer_logits_params& p, const Precision& precision);
void indexer_topk(const as_indexer_topk_params& p, const Precision& precision);
void topk_to_slots(const as_topk_to_slots_params& p, const Precision& precision);

void sample(const as_sample_params& p, const Precision& precision);

void rope_kv_insert(const as_rope_kv_insert_params& p, const Precision& precision);
void paged_attention(const as_paged_attention_params& p, const Precision& precision);

}  // namespace attnscope::reference
