// fp8_linear: a projection of e4m3 codes with a scale for each block of 128.
#include <algorithm>
#include <vector>

#include "kernels/cpu/codec.h"
#include "kernels/cpu/helper_ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

constexpr std::int64_t kBlock = 128;

// A row's codes as values.
void decode(const as_tensor& codes, std::int64_t row, float* values) {
  simd::kernels().decode_e4m3(at<unsigned char>(codes, row), 1.0f, codes.shape[1], values);
}

}  // namespace

void fp8_linear(const as_fp8_linear_params& p, const as_call* call, Check&) {
  const std::int64_t rows = p.x.shape[0], in = p.x.shape[1], outs = p.weight.shape[0];
  std::vector<float> x(static_cast<std::size_t>(rows * in));
  for (std::int64_t t = 0; t < rows; ++t) decode(p.x, t, x.data() + t * in);
  parallel_for(call, outs, 4, [&](std::int64_t begin, std::int64_t end) {
    const simd::Kernels& simd = simd::kernels();
    std::vector<float> weight(static_cast<std::size_t>(in));
    std::vector<float> part(static_cast<std::size_t>(rows)), sum(static_cast<std::size_t>(rows));
    for (std::int64_t o = begin; o < end; ++o) {
      decode(p.weight, o, weight.data());
      std::fill(sum.begin(), sum.end(), 0.0f);
      for (std::int64_t b = 0; b < in / kBlock; ++b) {
        simd.gemm_f32(x.data() + b * kBlock, in, rows, weight.data() + b * kBlock, kBlock, 1,
                      kBlock, part.data(), 1);
        const float scale = *at<float>(p.weight_scale, o / kBlock, b);
        for (std::int64_t t = 0; t < rows; ++t) {
          const auto i = static_cast<std::size_t>(t);
          sum[i] += part[i] * (*at<float>(p.x_scale, t, b) * scale);
        }
      }
      for (std::int64_t t = 0; t < rows; ++t) {
        const float value = sum[static_cast<std::size_t>(t)];
        if (p.y.dtype == AS_F32) {
          *at<float>(p.y, t, o) = value;
        } else {
          *at<std::uint16_t>(p.y, t, o) = float_to_bf16(value);
        }
      }
    }
  });
}

}  // namespace attnscope::cpu
