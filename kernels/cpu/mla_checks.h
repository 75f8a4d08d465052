// What the ops of absorbed MLA ask of their params, on the CPU and on the GPU. Tensors are marked
// as host memory whichever they are; `values` says whether they may be read.
#pragma once

#include "kernels/cpu/check.h"
#include "kernels/params/mla_params.h"

namespace attnscope::cpu {

bool check_params(const as_mla_q_absorb_params& p, bool values, Check& check);
bool check_params(const as_mla_kv_insert_params& p, bool values, Check& check);
bool check_params(const as_index_query_params& p, bool values, Check& check);
bool check_params(const as_index_key_insert_params& p, bool values, Check& check);
bool check_params(const as_mla_attention_params& p, bool values, Check& check);
bool check_params(const as_sparse_mla_attention_params& p, bool values, Check& check);
bool check_params(const as_mla_v_up_params& p, bool values, Check& check);

// Rows of its request that token t sees; 0 of padding.
std::int64_t seen_end(const as_mla_attention_params& p, std::int64_t t);

}  // namespace attnscope::cpu
