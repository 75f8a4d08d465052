// index_query: RoPE, Hadamard transform and FP8 of the queries of an indexer that scores tokens;
// head weights.
#include <cmath>

#include "kernels/cuda/early.cuh"
#include "kernels/cuda/mla_rows.cuh"
#include "kernels/cuda/ops.h"

namespace attnscope::cuda {
namespace {

constexpr int kWarps = 8;

// A warp a token and head; lane l holds dims 4l.. .
__global__ void __launch_bounds__(32 * kWarps)
    index_query_kernel(as_index_query_params p, float dim_scale, float head_scale,
                       std::int64_t items) {
  follow_kernel_before();
  const std::int64_t item = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (item >= items) return;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t heads = p.weights_raw.shape[1], t = item / heads, j = item % heads;
  const bool given = p.rows_given != 0;
  const auto* from = at<std::uint16_t>(given ? p.q_row : p.q_raw, t, j) + 4 * lane;
  float x[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = bf16_to_float(from[i]);
  if (!given) {
    const std::int64_t position = *at<std::int64_t>(p.positions, t);
    AS_DEVICE_CHECK(position >= 0 && position < p.rope.table.shape[0]);
    finish_index_row(x, at<float>(p.rope.table, position), p.hadamard != 0);
    if (present(p.q_row)) {
      auto* row = at<std::uint16_t>(p.q_row, t, j) + 4 * lane;
#pragma unroll
      for (int i = 0; i < 4; ++i) row[i] = float_to_bf16(x[i]);
    }
  }
  const float scale = quantise_index_row(x, p.scale_rule, at<unsigned char>(p.q, t, j));
  if (lane == 0) {
    const float weight = __fmul_rn(*at<float>(p.weights_raw, t, j), head_scale);
    *at<float>(p.weights, t, j) = __fmul_rn(__fmul_rn(weight, scale), dim_scale);
  }
}

}  // namespace

int index_query(const as_index_query_params& p, const Launch& launch) {
  const std::int64_t heads = p.weights_raw.shape[1], items = p.weights_raw.shape[0] * heads;
  if (items == 0) return 0;
  const auto dim_scale = static_cast<float>(1.0 / std::sqrt(double{AS_INDEX_DIM}));
  const auto head_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(heads)));
  const auto blocks = static_cast<unsigned>((items + kWarps - 1) / kWarps);
  return launch_early(launch.gpu.hopper, launch.stream, blocks, 32 * kWarps, 0, index_query_kernel,
                      p, dim_scale, head_scale, items);
}

}  // namespace attnscope::cuda
