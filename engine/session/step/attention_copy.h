// The attention weights of some token rows of one attention op, recomputed from its inputs. Of
// paged_attention and varlen_attention the window is what the token that sees most rows sees,
// oldest first.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/session/step/step_trace.h"
#include "kernels/params/attention_params.h"
#include "kernels/params/lane.h"
#include "kernels/params/paged_params.h"

namespace attnscope {

// rows: token rows of the op. Reads only slots inside the caches, whatever the lists hold.
AttentionCopy copy_attention(const as_sparse_attention_params& params,
                             const std::vector<std::int32_t>& rows, const as_threads* threads);
AttentionCopy copy_attention(const as_paged_attention_params& params,
                             const std::vector<std::int32_t>& rows, const as_threads* threads);

// Without caches: slots are rows of the keys.
AttentionCopy copy_attention(const as_varlen_attention_params& params,
                             const std::vector<std::int32_t>& rows, const as_threads* threads);

// Where a row of a request lies among those of its first tokens, in one of their caches; -1 = it is
// none of these.
struct WideRow {
  std::int64_t slot = -1;
};
WideRow wide_row(const as_paged_attention_params& params, const as_cache& cache,
                 std::int32_t request, std::int64_t row);

// The rows behind the slots of a copy, as they are in the caches now; their steps are not known.
void copy_rows_read(const as_sparse_attention_params& params, AttentionCopy* copy);
// Those of the values; extra_rows are those of first tokens.
void copy_rows_read(const as_paged_attention_params& params, AttentionCopy* copy);

std::int64_t attention_bytes(const AttentionCopy& copy);

}  // namespace attnscope
