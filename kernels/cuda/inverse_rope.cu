// inverse_rope: undoes the rotation that the values carry, at the query's position.
#include "kernels/cuda/codec.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/rope.cuh"

namespace attnscope::cuda {
namespace {

// A block a token and head, a thread a pair of dims.
__global__ void inverse_rope_kernel(as_inverse_rope_params p) {
  const std::int64_t t = blockIdx.x;
  const std::int64_t h = blockIdx.y;
  const std::int64_t dim = p.o.shape[2];
  const std::int64_t plain = dim - AS_ROPE_DIM;
  const std::uint16_t* in = at<std::uint16_t>(p.o, t, h);
  std::uint16_t* out = at<std::uint16_t>(p.out, t, h);
  const std::int64_t position = *at<std::int64_t>(p.positions, t);
  AS_DEVICE_CHECK(position >= 0 && position < p.rope.table.shape[0]);
  const float* row = at<float>(p.rope.table, position);
  for (std::int64_t i = threadIdx.x; i < plain; i += blockDim.x) out[i] = in[i];
  if (threadIdx.x < AS_ROPE_DIM / 2) {
    const std::int64_t d = plain + 2 * threadIdx.x;
    float even = bf16_to_float(in[d]);
    float odd = bf16_to_float(in[d + 1]);
    rotate_pair(row, static_cast<int>(threadIdx.x), -1.0f, &even, &odd);
    out[d] = float_to_bf16(even);
    out[d + 1] = float_to_bf16(odd);
  }
}

}  // namespace

int inverse_rope(const as_inverse_rope_params& p, const Launch& launch) {
  if (p.o.shape[0] == 0 || p.o.shape[1] == 0) return 0;
  const dim3 grid(static_cast<unsigned>(p.o.shape[0]), static_cast<unsigned>(p.o.shape[1]));
  inverse_rope_kernel<<<grid, 128, 0, static_cast<cudaStream_t>(launch.stream)>>>(p);
  return launch_status();
}

}  // namespace attnscope::cuda
