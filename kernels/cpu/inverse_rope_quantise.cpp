// inverse_rope_quantise: the rotation undone, the result in FP8 with a scale for each 128 dims.
#include <vector>

#include "kernels/cpu/codec.h"
#include "kernels/cpu/helper_ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/quantise.h"
#include "kernels/cpu/rope.h"

namespace attnscope::cpu {

void inverse_rope_quantise(const as_inverse_rope_quantise_params& p, const as_call* call, Check&) {
  constexpr int kBlock = 128;
  const std::int64_t heads = p.o.shape[1];
  const std::int64_t dim = p.o.shape[2];
  parallel_for(call, p.o.shape[0] * heads, 16, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> x(static_cast<std::size_t>(dim));
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t t = item / heads, h = item % heads;
      const auto* in = at<std::uint16_t>(p.o, t, h);
      for (std::int64_t d = 0; d < dim; ++d) x[static_cast<std::size_t>(d)] = bf16_to_float(in[d]);
      float* turned = x.data() + dim - AS_ROPE_DIM;
      rotate(turned, rope_row(p.rope, *at<std::int64_t>(p.positions, t)), -1.0f);
      for (int i = 0; i < AS_ROPE_DIM; ++i) turned[i] = round_bf16(turned[i]);
      for (std::int64_t block = 0; block < dim / kBlock; ++block) {
        const int exponent = quantise_fp8(x.data() + block * kBlock, kBlock,
                                          at<unsigned char>(p.codes, t, h, block * kBlock));
        *at<float>(p.scales, t, h, block) = exp2i(exponent);
      }
    }
  });
}

}  // namespace attnscope::cpu
