// indexer_q: RoPE, optional Hadamard transform and quantisation of index queries; head weights.
#include <cmath>

#include "kernels/cuda/early.cuh"
#include "kernels/cuda/insert.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/rope.cuh"

namespace attnscope::cuda {
namespace {

using Bits = std::uint16_t;
constexpr int kWarps = 8;

// A warp a token and head; lane l holds dims 4l.. .
__global__ void indexer_q_kernel(as_indexer_q_params p, float dim_scale, float head_scale,
                                 std::int64_t items) {
  follow_kernel_before();
  const std::int64_t item = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (item >= items) return;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t heads = p.weights_raw.shape[1];
  const std::int64_t t = item / heads;
  const std::int64_t j = item % heads;
  const Bits* in = at<Bits>(p.rows_given != 0 ? p.q_row : p.q_raw, t, j);
  float x[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = bf16_to_float(in[4 * lane + i]);
  if (p.rows_given == 0) {
    const std::int64_t position = *at<std::int64_t>(p.positions, t);
    AS_DEVICE_CHECK(position >= 0 && position < p.rope.table.shape[0]);
    if (lane >= 16) {
      const float* row = at<float>(p.rope.table, position);
      const int pair = 2 * (lane - 16);
      if (p.hadamard == AS_HADAMARD_ROUNDED) {
        rotate_pair_to_bf16(row, pair, &x[0], &x[1]);
        rotate_pair_to_bf16(row, pair + 1, &x[2], &x[3]);
      } else {
        rotate_pair(row, pair, 1.0f, &x[0], &x[1]);
        rotate_pair(row, pair + 1, 1.0f, &x[2], &x[3]);
      }
    }
    if (p.hadamard != 0) hadamard(x);
#pragma unroll
    for (float& v : x) v = round_bf16(v);
    if (present(p.q_row)) {
      Bits* out = at<Bits>(p.q_row, t, j);
#pragma unroll
      for (int i = 0; i < 4; ++i) out[4 * lane + i] = float_to_bf16(x[i]);
    }
  }
  float weight = bf16_to_float(*at<Bits>(p.weights_raw, t, j));
  unsigned char* codes = at<unsigned char>(p.q, t, j);
  if (p.format == AS_RECORD_INDEX_FP8) {
    weight *= exp2_int(quantise_index_fp8(x, codes, p.scale_floor));
  } else {
    quantise_index_mxfp4(x, codes, at<unsigned char>(p.q_scale, t, j), p.fp4_rule);
  }
  if (lane == 0) *at<float>(p.weights, t, j) = weight * dim_scale * head_scale;
}

}  // namespace

int indexer_q(const as_indexer_q_params& p, const Launch& launch) {
  const std::int64_t heads = p.weights_raw.shape[1];
  const std::int64_t items = p.weights_raw.shape[0] * heads;
  if (items == 0) return 0;
  const auto dim_scale = static_cast<float>(1.0 / std::sqrt(double{AS_INDEX_DIM}));
  const auto head_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(heads)));
  const auto blocks = static_cast<unsigned>((items + kWarps - 1) / kWarps);
  return launch_early(launch.gpu.hopper, launch.stream, blocks, 32 * kWarps, 0, indexer_q_kernel, p,
                      dim_scale, head_scale, items);
}

}  // namespace attnscope::cuda
