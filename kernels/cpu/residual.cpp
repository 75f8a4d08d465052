// residual: out = bf16(h + y).
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {

void residual(const as_residual_params& p, const as_call* call, Check& check) {
  if (!check.tensor("h", p.h, AS_BF16, {kAny, kAny})) return;
  const std::int64_t width = p.h.shape[1];
  if (!check.tensor("y", p.y, AS_BF16, {p.h.shape[0], width}) ||
      !check.tensor("out", p.out, AS_BF16, {p.h.shape[0], width})) {
    return;
  }
  using Bits = std::uint16_t;
  parallel_for(call, p.h.shape[0], 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      simd::kernels().add_bf16(at<Bits>(p.h, t), at<Bits>(p.y, t), width, at<Bits>(p.out, t));
    }
  });
}

}  // namespace attnscope::cpu
