// cross_batch: tokens of the source and of the decoder apart, each with its slots.
#include "kernels/cuda/ops.h"
#include "kernels/cuda/view.cuh"

namespace attnscope::cuda {
namespace {

constexpr int kCrossThreads = 128;

// One thread a token.
__global__ void cross_batch_kernel(as_cross_batch_params p) {
  const std::int64_t t = std::int64_t{blockIdx.x} * kCrossThreads + threadIdx.x;
  if (t >= p.positions.shape[0]) return;
  const std::int32_t request = *at<std::int32_t>(p.token_to_req, t);
  AS_DEVICE_CHECK(request < p.source_lens.shape[0]);
  const bool source =
      request >= 0 && *at<std::int64_t>(p.positions, t) < *at<std::int32_t>(p.source_lens, request);
  const bool target = request >= 0 && !source;
  const std::int64_t slot = *at<std::int64_t>(p.slots, p.group, t);
  *at<std::int32_t>(p.source_to_req, t) = source ? request : -1;
  *at<std::int32_t>(p.target_to_req, t) = target ? request : -1;
  *at<std::int64_t>(p.source_slots, t) = source ? slot : -1;
  *at<std::int64_t>(p.target_slots, t) = target ? slot : -1;
}

}  // namespace

int cross_batch(const as_cross_batch_params& p, const Launch& launch) {
  const std::int64_t tokens = p.positions.shape[0];
  if (tokens == 0) return 0;
  const auto blocks = static_cast<unsigned>((tokens + kCrossThreads - 1) / kCrossThreads);
  cross_batch_kernel<<<blocks, kCrossThreads, 0, static_cast<cudaStream_t>(launch.stream)>>>(p);
  return launch_status();
}

}  // namespace attnscope::cuda
