// sequence_table: the lists of a batch, from how many tokens each sequence has in it and before.
#include "kernels/cpu/helper_ops.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {

void sequence_table(const as_sequence_table_params& p, const as_call*, Check&) {
  const std::int64_t sequences = p.query_lens.shape[0], tokens = p.token_to_seq.shape[0];
  std::int32_t t = 0;
  for (std::int64_t r = 0; r < sequences; ++r) {
    const std::int32_t query = *at<std::int32_t>(p.query_lens, r);
    const std::int32_t computed = *at<std::int32_t>(p.computed, r);
    *at<std::int32_t>(p.cu_seqlens, r) = t;
    *at<std::int32_t>(p.seq_lens, r) = computed + query;
    for (std::int64_t c = 0; c < p.blocks.shape[1]; ++c) {
      const bool held = c * p.block_size < std::int64_t{computed} + query;
      *at<std::int32_t>(p.blocks, r, c) = held ? static_cast<std::int32_t>(c) : -1;
    }
    for (std::int32_t i = 0; i < query; ++i, ++t) {
      *at<std::int32_t>(p.token_to_seq, t) = static_cast<std::int32_t>(r);
      *at<std::int64_t>(p.positions, t) = std::int64_t{computed} + i;
    }
  }
  *at<std::int32_t>(p.cu_seqlens, sequences) = t;
  for (std::int64_t i = t; i < tokens; ++i) {
    *at<std::int32_t>(p.token_to_seq, i) = -1;
    *at<std::int64_t>(p.positions, i) = 0;
  }
}

}  // namespace attnscope::cpu
