// q_rope_kv_insert: per-head q norm and RoPE; KV RoPE, FP8 quantisation, insertion into the SWA
// cache.
#include "kernels/cuda/early.cuh"
#include "kernels/cuda/insert.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/rope.cuh"

namespace attnscope::cuda {
namespace {

using Bits = std::uint16_t;
constexpr int kWarps = 8;

// Sixteen values of a row of 512: dims 8l.. and 256 + 8l.. of lane l.
struct Slice {
  float v[16];

  __device__ void load(const Bits* row) {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 bits = *reinterpret_cast<const uint4*>(row + 256 * half + 8 * lane);
      const std::uint32_t pairs[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        v[8 * half + 2 * i] = __uint_as_float(pairs[i] << 16);
        v[8 * half + 2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
      }
    }
  }
  __device__ void store(Bits* row) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float* x = v + 8 * half;
      *reinterpret_cast<uint4*>(row + 256 * half + 8 * lane) =
          make_uint4(pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]), pack_bf16(x[4], x[5]),
                     pack_bf16(x[6], x[7]));
    }
  }
  // The norm in bf16 steps; sum and root in double, since a factor on the wrong side of a rounding
  // boundary would move the whole head.
  __device__ void normalise_rounded(bool factor_only, double eps) {
    double sum = 0.0;
#pragma unroll
    for (float x : v) {
      const float square = x * x;
      sum += static_cast<double>(factor_only ? square : round_bf16(square));
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
    double mean = sum / double{AS_HEAD_DIM};
    if (!factor_only) mean = static_cast<double>(round_bf16(mean));
    mean += eps;
    if (!factor_only) mean = static_cast<double>(round_bf16(mean));
    const float factor = round_bf16(1.0 / sqrt(mean));
#pragma unroll
    for (float& x : v) x = round_bf16(x * factor);
  }
  // The last 64 dims lie in the upper halves of lanes 24 to 31.
  __device__ void rotate(const float* rope_row) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    if (lane < 24) return;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      rotate_pair(rope_row, 4 * (lane - 24) + i, 1.0f, &v[8 + 2 * i], &v[9 + 2 * i]);
    }
  }
};

__device__ const float* rope_row(const as_q_rope_kv_insert_params& p, std::int64_t t) {
  const std::int64_t position = *at<std::int64_t>(p.positions, t);
  AS_DEVICE_CHECK(position >= 0 && position < p.rope.table.shape[0]);
  return at<float>(p.rope.table, position);
}

__device__ void query(const as_q_rope_kv_insert_params& p, std::int64_t t, std::int64_t h) {
  Slice q;
  q.load(at<Bits>(p.q_raw, t, h));
  if (p.q_norm == AS_Q_NORM_FP32) {
    float squares = 0.0f;
#pragma unroll
    for (float v : q.v) squares = fmaf(v, v, squares);
    const float factor = inverse_rms(warp_sum(squares), AS_HEAD_DIM, p.eps);
#pragma unroll
    for (float& v : q.v) v *= factor;
  } else {
    q.normalise_rounded(p.q_norm == AS_Q_NORM_BF16_FACTOR, p.eps);
  }
  q.rotate(rope_row(p, t));
  q.store(at<Bits>(p.q, t, h));
}

__device__ void latent_row(const as_q_rope_kv_insert_params& p, const CacheView& cache,
                           std::int64_t t) {
  Slice row;
  if (p.rows_given != 0) {
    row.load(at<Bits>(p.kv_row, t));
  } else {
    row.load(at<Bits>(p.kv, t));
    row.rotate(rope_row(p, t));
#pragma unroll
    for (float& v : row.v) v = round_bf16(v);
    if (present(p.kv_row)) row.store(at<Bits>(p.kv_row, t));
  }
  const std::int64_t slot = *at<std::int64_t>(p.slots, t);
  if (slot >= 0) insert_latent(row.v, cache_row(cache, slot, 576, 8), p.scale_floor);
}

// A warp a row: `heads` queries of a token, then its latent row.
__global__ void q_rope_kv_insert_kernel(as_q_rope_kv_insert_params p, CacheView cache, int heads,
                                        std::int64_t rows) {
  follow_kernel_before();
  const std::int64_t item = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (item >= rows) return;
  const std::int64_t t = item / (heads + 1);
  const std::int64_t h = item % (heads + 1);
  if (h < heads) {
    query(p, t, h);
  } else {
    latent_row(p, cache, t);
  }
}

}  // namespace

int q_rope_kv_insert(const as_q_rope_kv_insert_params& p, const Launch& launch) {
  const int heads = p.rows_given != 0 ? 0 : static_cast<int>(p.q_raw.shape[1]);
  const std::int64_t rows = p.slots.shape[0] * (heads + 1);
  if (rows == 0) return 0;
  const auto blocks = static_cast<unsigned>((rows + kWarps - 1) / kWarps);
  return launch_early(launch.gpu.hopper, launch.stream, blocks, 32 * kWarps, 0,
                      q_rope_kv_insert_kernel, p, cache_view(p.cache), heads, rows);
}

}  // namespace attnscope::cuda
