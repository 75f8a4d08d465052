// gather_rows: the values of cache rows, by slot.
#include <algorithm>
#include <vector>

#include "kernels/cpu/codec.h"
#include "kernels/cpu/helper_ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/layout/records.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {

void gather_rows(const as_gather_rows_params& p, const as_call* call, Check&) {
  const std::int64_t width = p.out.shape[1];
  parallel_for(call, p.slots.shape[0], 8, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> row(static_cast<std::size_t>(width));
    for (std::int64_t n = begin; n < end; ++n) {
      const std::int64_t slot = *at<std::int64_t>(p.slots, n);
      if (slot < 0) {
        std::fill(row.begin(), row.end(), 0.0f);
      } else {
        const as_row_address from = as_cache_row(&p.cache, slot);
        decode_row(p.cache.record, p.cache.width, from.payload, from.scales, row.data());
      }
      if (p.out.dtype == AS_F32) {
        std::copy(row.begin(), row.end(), at<float>(p.out, n));
      } else {
        std::transform(row.begin(), row.end(), at<std::uint16_t>(p.out, n), float_to_bf16);
      }
    }
  });
}

}  // namespace attnscope::cpu
