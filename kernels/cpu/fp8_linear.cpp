// fp8_linear: a projection of e4m3 codes with a scale for each block of 128.
#include "kernels/cpu/fp8_product.h"
#include "kernels/cpu/helper_ops.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {

void fp8_linear(const as_fp8_linear_params& p, const as_call* call, Check&) {
  Fp8Rows x(p.x.shape[0], p.x.shape[1]);
  const std::int64_t blocks = p.x_scale.shape[1];
  for (std::int64_t t = 0; t < x.rows; ++t) {
    simd::kernels().decode_e4m3(at<unsigned char>(p.x, t), 1.0f, x.in, x.values.data() + t * x.in);
    for (std::int64_t b = 0; b < blocks; ++b) {
      x.scales[static_cast<std::size_t>(t * blocks + b)] = *at<float>(p.x_scale, t, b);
    }
  }
  multiply_fp8(x, p.weight, p.weight_scale, p.y, call);
}

}  // namespace attnscope::cpu
