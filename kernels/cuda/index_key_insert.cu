// index_key_insert: LayerNorm, RoPE, Hadamard transform and FP8 of a token's index key.
#include "kernels/cuda/early.cuh"
#include "kernels/cuda/mla_rows.cuh"
#include "kernels/cuda/ops.h"

namespace attnscope::cuda {
namespace {

using Params = as_index_key_insert_params;

constexpr int kWarps = 8;

__device__ __forceinline__ double warp_sum_of(double value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}

// A warp a token; lane l holds dims 4l.. . In float64, rounded once to bf16.
__device__ __forceinline__ void layer_norm(const Params& p, float (&x)[4]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  double off[4], sum = 0.0, square = 0.0;
#pragma unroll
  for (int i = 0; i < 4; ++i) sum += static_cast<double>(x[i]);
  const double mean = warp_sum_of(sum) / AS_INDEX_DIM;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    off[i] = static_cast<double>(x[i]) - mean;
    square += off[i] * off[i];
  }
  const double factor = 1.0 / sqrt(warp_sum_of(square) / AS_INDEX_DIM + p.eps);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto weight =
        static_cast<double>(bf16_to_float(*at<std::uint16_t>(p.weight, 4 * lane + i)));
    const auto bias = static_cast<double>(bf16_to_float(*at<std::uint16_t>(p.bias, 4 * lane + i)));
    x[i] = round_bf16(__dadd_rn(__dmul_rn(__dmul_rn(off[i], factor), weight), bias));
  }
}

__global__ void __launch_bounds__(32 * kWarps)
    index_key_insert_kernel(Params p, CacheView cache, std::int64_t tokens) {
  follow_kernel_before();
  const std::int64_t t = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (t >= tokens) return;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const bool given = p.rows_given != 0;
  const auto* from = at<std::uint16_t>(given ? p.row : p.k, t) + 4 * lane;
  float x[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = bf16_to_float(from[i]);
  if (!given) {
    layer_norm(p, x);
    const std::int64_t position = *at<std::int64_t>(p.positions, t);
    AS_DEVICE_CHECK(position >= 0 && position < p.rope.table.shape[0]);
    finish_index_row(x, at<float>(p.rope.table, position), p.hadamard != 0);
    if (present(p.row)) {
      auto* row = at<std::uint16_t>(p.row, t) + 4 * lane;
#pragma unroll
      for (int i = 0; i < 4; ++i) row[i] = float_to_bf16(x[i]);
    }
  }
  const std::int64_t slot = *at<std::int64_t>(p.slots, t);
  if (slot < 0) return;
  const RowAddress to = cache_row(cache, slot, AS_INDEX_DIM, 4);
  const float scale = quantise_index_row(x, p.scale_rule, to.payload);
  if (lane == 0) *reinterpret_cast<float*>(to.scales) = scale;
}

}  // namespace

int index_key_insert(const Params& p, const Launch& launch) {
  const std::int64_t tokens = p.slots.shape[0];
  if (tokens == 0) return 0;
  const auto blocks = static_cast<unsigned>((tokens + kWarps - 1) / kWarps);
  return launch_early(launch.gpu.hopper, launch.stream, blocks, 32 * kWarps, 0,
                      index_key_insert_kernel, p, cache_view(p.cache), tokens);
}

}  // namespace attnscope::cuda
