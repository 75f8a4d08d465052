// pad_rows: rows of different length as a rectangle.
#include "kernels/cpu/helper_ops.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {

void pad_rows(const as_pad_rows_params& p, const as_call*, Check&) {
  for (std::int64_t r = 0; r < p.rows.shape[0]; ++r) {
    const std::int64_t first = *at<std::int32_t>(p.starts, r);
    const std::int64_t values = *at<std::int32_t>(p.starts, r + 1) - first;
    for (std::int64_t c = 0; c < p.rows.shape[1]; ++c) {
      *at<std::int32_t>(p.rows, r, c) = c < values ? *at<std::int32_t>(p.values, first + c) : p.pad;
    }
  }
}

}  // namespace attnscope::cpu
