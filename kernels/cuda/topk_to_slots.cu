// topk_to_slots: selected entries of a request as slots of the compressed cache.
#include "kernels/cuda/early.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"

namespace attnscope::cuda {
namespace {

__global__ void topk_to_slots_kernel(as_topk_to_slots_params p) {
  follow_kernel_before();
  const std::int64_t t = blockIdx.x;
  const int request = *at<std::int32_t>(p.token_to_req, t);
  int valid = 0;
  for (std::int64_t k = threadIdx.x; k < p.indices.shape[1]; k += blockDim.x) {
    const int entry = *at<std::int32_t>(p.indices, t, k);
    std::int32_t slot = -1;
    if (entry >= 0 && request >= 0) {
      AS_DEVICE_CHECK(entry / p.rows_per_block < p.table.shape[1]);
      const std::int64_t id = *at<std::int32_t>(p.table, request, entry / p.rows_per_block);
      slot = static_cast<std::int32_t>(id * p.rows_per_block + entry % p.rows_per_block);
      ++valid;
    }
    *at<std::int32_t>(p.slots, t, k) = slot;
  }
  valid = block_sum(valid);
  if (threadIdx.x == 0) *at<std::int32_t>(p.lens, t) = valid;
}

}  // namespace

int topk_to_slots(const as_topk_to_slots_params& p, const Launch& launch) {
  const std::int64_t tokens = p.indices.shape[0];
  if (tokens == 0) return 0;
  return launch_early(launch.gpu.hopper, launch.stream, static_cast<unsigned>(tokens), 256, 0,
                      topk_to_slots_kernel, p);
}

}  // namespace attnscope::cuda
