// inverse_rope_quantise: the rotation undone, the result in FP8 with a scale for each 128 dims. A
// warp such a block of dims.
#include "kernels/cuda/helper_ops.h"
#include "kernels/cuda/insert.cuh"
#include "kernels/cuda/rope.cuh"

namespace attnscope::cuda {
namespace {

constexpr int kBlock = 128;
constexpr int kWarps = 4;

__global__ void __launch_bounds__(32 * kWarps)
    inverse_rope_quantise_kernel(as_inverse_rope_quantise_params p) {
  const std::int64_t blocks = p.o.shape[2] / kBlock, heads = p.o.shape[1];
  const std::int64_t item = std::int64_t{blockIdx.x} * kWarps + threadIdx.y;
  if (item >= p.o.shape[0] * heads * blocks) return;
  const std::int64_t block = item % blocks, h = item / blocks % heads, t = item / blocks / heads;
  const int lane = static_cast<int>(threadIdx.x);
  const std::int64_t first = block * kBlock + 4 * lane;
  const std::uint16_t* in = at<std::uint16_t>(p.o, t, h) + first;
  float x[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = bf16_to_float(in[i]);
  const std::int64_t turned = first - (p.o.shape[2] - AS_ROPE_DIM);
  if (turned >= 0) {
    const std::int64_t position = *at<std::int64_t>(p.positions, t);
    AS_DEVICE_CHECK(position >= 0 && position < p.rope.table.shape[0]);
    const float* row = at<float>(p.rope.table, position);
    rotate_pair(row, static_cast<int>(turned) / 2, -1.0f, &x[0], &x[1]);
    rotate_pair(row, static_cast<int>(turned) / 2 + 1, -1.0f, &x[2], &x[3]);
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = round_bf16(x[i]);
  }
  const int exponent =
      quantise_index_fp8(x, at<unsigned char>(p.codes, t, h, block * kBlock), AS_SCALE_FLOOR_1E4);
  if (lane == 0) *at<float>(p.scales, t, h, block) = exp2_int(exponent);
}

}  // namespace

int inverse_rope_quantise(const as_inverse_rope_quantise_params& p, const Launch& launch) {
  const std::int64_t items = p.o.shape[0] * p.o.shape[1] * (p.o.shape[2] / kBlock);
  if (items == 0) return 0;
  const auto grid = static_cast<unsigned>((items + kWarps - 1) / kWarps);
  inverse_rope_quantise_kernel<<<grid, dim3(32, kWarps), 0,
                                 static_cast<cudaStream_t>(launch.stream)>>>(p);
  return launch_status();
}

}  // namespace attnscope::cuda
