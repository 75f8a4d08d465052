// residual: out = bf16(h + y).
#include "kernels/cuda/codec.cuh"
#include "kernels/cuda/early.cuh"
#include "kernels/cuda/ops.h"

namespace attnscope::cuda {
namespace {

__global__ void residual_kernel(as_residual_params p) {
  follow_kernel_before();
  const std::int64_t t = blockIdx.y;
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= p.h.shape[1]) return;
  const float sum =
      bf16_to_float(*at<std::uint16_t>(p.h, t, i)) + bf16_to_float(*at<std::uint16_t>(p.y, t, i));
  *at<std::uint16_t>(p.out, t, i) = float_to_bf16(sum);
}

}  // namespace

int residual(const as_residual_params& p, const Launch& launch) {
  constexpr std::int64_t kMaxRows = 65535;  // of a grid's second axis
  const std::int64_t width = p.h.shape[1];
  for (std::int64_t first = 0; first < p.h.shape[0] && width > 0; first += kMaxRows) {
    as_residual_params part = p;
    for (as_tensor* t : {&part.h, &part.y, &part.out}) {
      t->data = static_cast<std::uint16_t*>(t->data) + first * t->stride[0];
    }
    const std::int64_t rows = p.h.shape[0] - first < kMaxRows ? p.h.shape[0] - first : kMaxRows;
    const dim3 grid(static_cast<unsigned>((width + 255) / 256), static_cast<unsigned>(rows));
    const int code =
        launch_early(launch.gpu.hopper, launch.stream, grid, 256, 0, residual_kernel, part);
    if (code != 0) return code;
  }
  return 0;
}

}  // namespace attnscope::cuda
