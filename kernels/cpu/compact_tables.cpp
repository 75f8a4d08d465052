// compact_tables: the blocks that a table still has, in their order.
#include "kernels/cpu/helper_ops.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {

void compact_tables(const as_compact_tables_params& p, const as_call*, Check&) {
  for (std::int64_t r = 0; r < p.table.shape[0]; ++r) {
    std::int64_t kept = 0;
    for (std::int64_t c = 0; c < *at<std::int32_t>(p.lens, r); ++c) {
      const std::int32_t block = *at<std::int32_t>(p.table, r, c);
      if (block < 0 || block == p.null_block) continue;
      *at<std::int32_t>(p.compact, r, kept) = block;
      *at<std::int32_t>(p.columns, r, kept) = static_cast<std::int32_t>(c);
      ++kept;
    }
    *at<std::int32_t>(p.kept, r) = static_cast<std::int32_t>(kept);
    for (std::int64_t k = kept; k < p.table.shape[1]; ++k) {
      *at<std::int32_t>(p.compact, r, k) = *at<std::int32_t>(p.columns, r, k) = -1;
    }
  }
}

}  // namespace attnscope::cpu
