// c128_index: the slots of all C128A entries that each token sees.
#include "kernels/cuda/ops.h"
#include "kernels/cuda/view.cuh"

namespace attnscope::cuda {
namespace {

__global__ void c128_index_kernel(as_c128_index_params p) {
  const std::int64_t t = blockIdx.x;
  const int request = *at<std::int32_t>(p.token_to_req, t);
  const std::int64_t n = request < 0 ? 0 : (*at<std::int64_t>(p.positions, t) + 1) / p.ratio;
  AS_DEVICE_CHECK(n <= p.indices.shape[1]);
  if (threadIdx.x == 0) *at<std::int32_t>(p.lens, t) = static_cast<std::int32_t>(n);
  for (std::int64_t c = threadIdx.x; c < p.indices.shape[1]; c += blockDim.x) {
    std::int32_t slot = -1;
    if (c < n) {
      AS_DEVICE_CHECK(c / p.rows_per_block < p.table.shape[1]);
      const std::int64_t id = *at<std::int32_t>(p.table, request, c / p.rows_per_block);
      slot = static_cast<std::int32_t>(id * p.rows_per_block + c % p.rows_per_block);
    }
    *at<std::int32_t>(p.indices, t, c) = slot;
  }
}

}  // namespace

int c128_index(const as_c128_index_params& p, const Launch& launch) {
  const std::int64_t tokens = p.positions.shape[0];
  if (tokens == 0) return 0;
  c128_index_kernel<<<static_cast<unsigned>(tokens), 256, 0,
                      static_cast<cudaStream_t>(launch.stream)>>>(p);
  return launch_status();
}

}  // namespace attnscope::cuda
