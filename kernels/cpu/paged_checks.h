// What the ops of dense attention ask of their params, on the CPU and on the GPU. Tensors are
// marked as host memory whichever they are; `values` says whether they may be read.
#pragma once

#include "kernels/cpu/check.h"
#include "kernels/params/paged_params.h"

namespace attnscope::cpu {

bool check_params(const as_rope_kv_insert_params& p, bool values, Check& check);
bool check_params(const as_paged_attention_params& p, bool values, Check& check);
bool check_params(const as_varlen_attention_params& p, bool values, Check& check);

// Whether a call writes rows of first tokens in 16 bits.
bool has_wide_rows(const as_rope_kv_insert_params& p);

// Whether anything is rotated, and how many dims.
inline std::int64_t rotary_dim(const as_rope& rope) {
  return rope.table.data != nullptr || rope.table.rank > 0 ? rope.table.shape[1] : 0;
}

// The rows that token t of request r sees.
struct SeenRows {
  std::int64_t first = 0, end = 0;
};
SeenRows seen_rows(const as_paged_attention_params& p, std::int64_t t, std::int64_t r);

// What masks and score functions are asked for token t of request r: q_idx, and kv_idx of row 0.
struct MaskOrigin {
  std::int64_t query = 0, row = 0;
};
MaskOrigin mask_origin(const as_paged_attention_params& p, std::int64_t t, std::int64_t r);

}  // namespace attnscope::cpu
