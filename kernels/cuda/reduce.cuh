// Sums and maxima over the lanes of a warp and the warps of a block, in a fixed order.
#pragma once

#include <cstdint>

#include "kernels/cuda/view.cuh"

namespace attnscope::cuda {

constexpr unsigned kAllLanes = 0xffffffffu;

// Over groups of `width` neighbouring lanes; every lane gets the result.
template <int width = 32>
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int step = width / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, step);
  }
  return value;
}
template <int width = 32>
__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int step = width / 2; step > 0; step /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, step));
  }
  return value;
}

// Over a block of whole warps, at most 1024 threads; every thread gets the sum. May be called again
// at once.
template <class T>
__device__ inline T block_sum(T value) {
  __shared__ T parts[32];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  __syncthreads();
  if (lane == 0) parts[warp] = value;
  __syncthreads();
  T total = parts[0];
  for (unsigned w = 1; w < warps; ++w) total += parts[w];
  return total;
}

// Sum over the threads before this one, and over all of them.
struct Prefix {
  std::uint32_t before;
  std::uint32_t total;
};
__device__ inline Prefix block_prefix(std::uint32_t value) {
  __shared__ std::uint32_t parts[32];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  std::uint32_t sum = value;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const std::uint32_t other = __shfl_up_sync(kAllLanes, sum, step);
    if (lane >= static_cast<unsigned>(step)) sum += other;
  }
  __syncthreads();
  if (lane == 31) parts[warp] = sum;
  __syncthreads();
  Prefix prefix{sum - value, 0};
  for (unsigned w = 0; w < warps; ++w) {
    if (w < warp) prefix.before += parts[w];
    prefix.total += parts[w];
  }
  return prefix;
}

// The factor of an RMS norm over n values.
__device__ __forceinline__ float inverse_rms(float sum_squares, std::int64_t n, double eps) {
  return static_cast<float>(1.0 /
                            sqrt(static_cast<double>(sum_squares) / static_cast<double>(n) + eps));
}

}  // namespace attnscope::cuda
