// swa_index: the slots of each token's sliding window, oldest first.
#include "kernels/cuda/ops.h"
#include "kernels/cuda/view.cuh"

namespace attnscope::cuda {
namespace {

// One block a token and group.
__global__ void swa_index_kernel(as_swa_index_params p) {
  const std::int64_t t = blockIdx.x;
  const std::int64_t group = blockIdx.y;
  const int request = *at<std::int32_t>(p.token_to_req, t);
  std::int64_t start = 0;
  std::int64_t len = 0;
  if (request >= 0) {
    const int first = *at<std::int32_t>(p.query_start_loc, request);
    const int query_len = *at<std::int32_t>(p.query_start_loc, request + 1) - first;
    const std::int64_t position = *at<std::int32_t>(p.seq_lens, request) - query_len + (t - first);
    start = position - p.window + 1 > 0 ? position - p.window + 1 : 0;
    len = position + 1 - start;
  }
  if (group == 0 && threadIdx.x == 0) {
    *at<std::int32_t>(p.lens, t) = static_cast<std::int32_t>(len);
  }
  for (int k = static_cast<int>(threadIdx.x); k < p.window; k += static_cast<int>(blockDim.x)) {
    std::int32_t slot = -1;
    if (k < len) {
      const std::int64_t token = start + k;
      AS_DEVICE_CHECK(token / p.block_size < p.tables.shape[2]);
      const std::int64_t id = *at<std::int32_t>(p.tables, group, request, token / p.block_size);
      slot = static_cast<std::int32_t>(id * p.block_size + token % p.block_size);
    }
    *at<std::int32_t>(p.indices, group, t, k) = slot;
  }
}

}  // namespace

int swa_index(const as_swa_index_params& p, const Launch& launch) {
  const std::int64_t tokens = p.token_to_req.shape[0];
  if (tokens == 0 || p.tables.shape[0] == 0) return 0;
  const dim3 grid(static_cast<unsigned>(tokens), static_cast<unsigned>(p.tables.shape[0]));
  swa_index_kernel<<<grid, 128, 0, static_cast<cudaStream_t>(launch.stream)>>>(p);
  return launch_status();
}

}  // namespace attnscope::cuda
