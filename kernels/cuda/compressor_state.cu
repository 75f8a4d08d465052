// compressor_state, indexer_compressor_state: saves values and gates (position bias added) of each
// token as one fp32 row.
#include "kernels/cuda/early.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/view.cuh"

namespace attnscope::cuda {
namespace {

__global__ void compressor_state_kernel(as_compressor_state_params p, CacheView state) {
  follow_kernel_before();
  const std::int64_t t = blockIdx.x;
  const std::int64_t slot = *at<std::int64_t>(p.slots, t);
  if (slot < 0) return;
  const auto width = static_cast<int>(p.ape.shape[1]);
  auto* row = reinterpret_cast<float*>(cache_row(state, slot, 8 * width, 0).payload);
  const float* proj = at<float>(p.proj, t);
  const float* ape = at<float>(p.ape, *at<std::int64_t>(p.positions, t) % p.ratio);
  for (int k = static_cast<int>(threadIdx.x); k < width; k += static_cast<int>(blockDim.x)) {
    row[k] = proj[k];
    row[width + k] = proj[width + k] + ape[k];
  }
}

}  // namespace

int compressor_state(const as_compressor_state_params& p, const Launch& launch) {
  const std::int64_t tokens = p.slots.shape[0];
  if (tokens == 0) return 0;
  return launch_early(launch.gpu.hopper, launch.stream, static_cast<unsigned>(tokens), 256, 0,
                      compressor_state_kernel, p, cache_view(p.state));
}

}  // namespace attnscope::cuda
