// fp8_linear: a projection of e4m3 codes with a scale for each block of 128.
#include "kernels/cpu/fp8_product.h"
#include "kernels/cpu/helper_ops.h"

namespace attnscope::cpu {

void fp8_linear(const as_fp8_linear_params& p, const as_call* call, Check&) {
  multiply_fp8(decode_rows(p.x, p.x_scale, call), p.weight, p.weight_scale, p.y, call);
}

}  // namespace attnscope::cpu
