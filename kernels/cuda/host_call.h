// Per op, what staging cannot learn from the op table: which blocks of a cache and which rows of
// the rotary table a call with host tensors touches. Params have been checked, values included.
#pragma once

#include "kernels/cuda/staging.h"
#include "kernels/params/attention_params.h"
#include "kernels/params/compressor_params.h"
#include "kernels/params/helper_params.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/mla_params.h"
#include "kernels/params/offload_params.h"
#include "kernels/params/paged_params.h"

namespace attnscope::cuda {

// `device` gets GPU addresses of caches and rotary rows; `host` is as it was given.
void stage_more(const as_q_rope_kv_insert_params& host, as_q_rope_kv_insert_params& device,
                Staging& staging);
void stage_more(const as_sparse_attention_params& host, as_sparse_attention_params& device,
                Staging& staging);
void stage_more(const as_inverse_rope_params& host, as_inverse_rope_params& device,
                Staging& staging);
void stage_more(const as_compressor_state_params& host, as_compressor_state_params& device,
                Staging& staging);
void stage_more(const as_compress_insert_params& host, as_compress_insert_params& device,
                Staging& staging);
void stage_more(const as_indexer_q_params& host, as_indexer_q_params& device, Staging& staging);
void stage_more(const as_indexer_logits_params& host, as_indexer_logits_params& device,
                Staging& staging);
void stage_more(const as_rope_kv_insert_params& host, as_rope_kv_insert_params& device,
                Staging& staging);
void stage_more(const as_paged_attention_params& host, as_paged_attention_params& device,
                Staging& staging);
void stage_more(const as_gather_rows_params& host, as_gather_rows_params& device, Staging& staging);
void stage_more(const as_convert_rows_params& host, as_convert_rows_params& device,
                Staging& staging);
void stage_more(const as_exchange_rows_params& host, as_exchange_rows_params& device,
                Staging& staging);
void stage_more(const as_swap_out_params& host, as_swap_out_params& device, Staging& staging);
void stage_more(const as_swap_in_params& host, as_swap_in_params& device, Staging& staging);
void stage_more(const as_inverse_rope_quantise_params& host,
                as_inverse_rope_quantise_params& device, Staging& staging);
void stage_more(const as_mla_q_absorb_params& host, as_mla_q_absorb_params& device,
                Staging& staging);
void stage_more(const as_mla_kv_insert_params& host, as_mla_kv_insert_params& device,
                Staging& staging);
void stage_more(const as_index_query_params& host, as_index_query_params& device, Staging& staging);
void stage_more(const as_index_key_insert_params& host, as_index_key_insert_params& device,
                Staging& staging);
void stage_more(const as_mla_attention_params& host, as_mla_attention_params& device,
                Staging& staging);
void stage_more(const as_sparse_mla_attention_params& host, as_sparse_mla_attention_params& device,
                Staging& staging);
template <class Params>
void stage_more(const Params&, Params&, Staging&) {}

}  // namespace attnscope::cuda
