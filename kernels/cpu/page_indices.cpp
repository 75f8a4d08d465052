// page_indices: the blocks of all sequences one after another.
#include "kernels/cpu/helper_ops.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {

void page_indices(const as_page_indices_params& p, const as_call*, Check&) {
  const std::int64_t sequences = p.table.shape[0];
  std::int32_t page = 0;
  for (std::int64_t r = 0; r < sequences; ++r) {
    const std::int64_t length = *at<std::int32_t>(p.seq_lens, r);
    *at<std::int32_t>(p.indptr, r) = page;
    for (std::int64_t c = 0; c * p.block_size < length; ++c, ++page) {
      *at<std::int32_t>(p.indices, page) = *at<std::int32_t>(p.table, r, c);
    }
    *at<std::int32_t>(p.last_page_len, r) =
        length == 0 ? 0 : static_cast<std::int32_t>((length - 1) % p.block_size + 1);
  }
  *at<std::int32_t>(p.indptr, sequences) = page;
  for (std::int64_t i = page; i < p.indices.shape[0]; ++i) *at<std::int32_t>(p.indices, i) = -1;
}

}  // namespace attnscope::cpu
