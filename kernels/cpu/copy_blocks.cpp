// copy_blocks: blocks copied or exchanged by pairs of ids.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/helper_ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {

void copy_blocks(const as_copy_blocks_params& p, const as_call* call, Check& check) {
  for (const as_tensor* t : {&p.from, &p.to, &p.pairs}) {
    if (t->device == 0) continue;
    check.fail("a tensor lies on device %d; this lane reads host memory (device 0)", t->device);
    return;
  }
  const std::int64_t bytes = p.from.shape[1];
  parallel_for(call, p.pairs.shape[0], 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      const std::int64_t source = *at<std::int64_t>(p.pairs, n, 0);
      const std::int64_t target = *at<std::int64_t>(p.pairs, n, 1);
      if (source < 0 || target < 0) continue;
      auto* from = at<unsigned char>(p.from, source);
      auto* to = at<unsigned char>(p.to, target);
      if (p.exchange != 0) {
        std::swap_ranges(from, from + bytes, to);
      } else {
        std::memcpy(to, from, static_cast<std::size_t>(bytes));
      }
    }
  });
}

}  // namespace attnscope::cpu
