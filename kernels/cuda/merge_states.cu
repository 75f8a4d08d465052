// merge_states: two partial attentions over disjoint entries as one. A warp a row of a head.
#include "kernels/cuda/codec.cuh"
#include "kernels/cuda/helper_ops.h"

namespace attnscope::cuda {
namespace {

constexpr int kRows = 4;  // of a block

__device__ __forceinline__ float load(const float* p) { return *p; }
__device__ __forceinline__ float load(const std::uint16_t* p) { return bf16_to_float(*p); }
__device__ __forceinline__ void store(float* p, float value) { *p = value; }
__device__ __forceinline__ void store(std::uint16_t* p, float value) { *p = float_to_bf16(value); }

template <class T>
__global__ void __launch_bounds__(32 * kRows) merge_states_kernel(as_merge_states_params p) {
  const std::int64_t heads = p.a.shape[1];
  const std::int64_t row = std::int64_t{blockIdx.x} * kRows + threadIdx.y;
  if (row >= p.a.shape[0] * heads) return;
  const std::int64_t t = row / heads, h = row % heads;
  const float a = *at<float>(p.lse_a, t, h);
  const float b = *at<float>(p.lse_b, t, h);
  // Every lane has read the sums before one writes what may be the same place.
  __syncwarp();
  const bool no_a = isinf(a), no_b = isinf(b);
  float wa = no_a ? 0.0f : 1.0f, wb = no_b ? 0.0f : 1.0f;
  float lse = no_a ? (no_b ? __uint_as_float(0x7f800000u) : b) : a;
  if (!no_a && !no_b) {
    const float m = fmaxf(a, b);
    wa = p.base_2 != 0 ? exp2f(a - m) : expf(a - m);
    wb = p.base_2 != 0 ? exp2f(b - m) : expf(b - m);
    const float sum = wa + wb;
    lse = m + (p.base_2 != 0 ? log2f(sum) : logf(sum));
    wa /= sum;
    wb /= sum;
  }
  const T* from_a = at<T>(p.a, t, h);
  const T* from_b = at<T>(p.b, t, h);
  T* to = at<T>(p.out, t, h);
  for (std::int64_t d = threadIdx.x; d < p.a.shape[2]; d += 32) {
    // An empty state's values may be anything: 0 times NaN is NaN.
    const float x = no_a ? 0.0f : wa * load(from_a + d);
    const float y = no_b ? 0.0f : wb * load(from_b + d);
    store(to + d, x + y);
  }
  if (threadIdx.x == 0) *at<float>(p.lse, t, h) = lse;
}

}  // namespace

int merge_states(const as_merge_states_params& p, const Launch& launch) {
  const std::int64_t rows = p.a.shape[0] * p.a.shape[1];
  if (rows == 0) return 0;
  const auto grid = static_cast<unsigned>((rows + kRows - 1) / kRows);
  const auto stream = static_cast<cudaStream_t>(launch.stream);
  const dim3 block(32, kRows);
  if (p.a.dtype == AS_F32) {
    merge_states_kernel<float><<<grid, block, 0, stream>>>(p);
  } else {
    merge_states_kernel<std::uint16_t><<<grid, block, 0, stream>>>(p);
  }
  return launch_status();
}

}  // namespace attnscope::cuda
