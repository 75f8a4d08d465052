// sample: greedy choice, the lowest id of equal logits.
#include "kernels/cuda/ops.h"
#include "kernels/cuda/view.cuh"

namespace attnscope::cuda {
namespace {

constexpr int kThreads = 256;

struct Best {
  float value;
  int id;  // -1: no number seen yet
};

__device__ Best better(const Best& a, const Best& b) {
  if (a.id < 0) return b;
  if (b.id < 0) return a;
  if (a.value != b.value) return a.value > b.value ? a : b;
  return a.id < b.id ? a : b;
}

__global__ void sample_kernel(as_sample_params p) {
  __shared__ Best shared[kThreads];
  const float* logits = at<float>(p.logits, blockIdx.x);
  Best best{0.0f, -1};
  for (std::int64_t v = threadIdx.x; v < p.logits.shape[1]; v += kThreads) {
    if (logits[v] == logits[v]) best = better(best, {logits[v], static_cast<int>(v)});
  }
  shared[threadIdx.x] = best;
  for (unsigned step = kThreads / 2; step > 0; step /= 2) {
    __syncthreads();
    if (threadIdx.x < step) {
      shared[threadIdx.x] = better(shared[threadIdx.x], shared[threadIdx.x + step]);
    }
  }
  if (threadIdx.x == 0) *at<std::int32_t>(p.tokens, blockIdx.x) = shared[0].id;
}

}  // namespace

int sample(const as_sample_params& p, const Launch& launch) {
  if (p.logits.shape[0] == 0) return 0;
  sample_kernel<<<static_cast<unsigned>(p.logits.shape[0]), kThreads, 0,
                  static_cast<cudaStream_t>(launch.stream)>>>(p);
  return launch_status();
}

}  // namespace attnscope::cuda
