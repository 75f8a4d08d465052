// compress_insert, indexer_compress_insert: pools a window of state rows into one entry, norm,
// RoPE, quantisation, insertion.
#include "kernels/cuda/insert.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/rope.cuh"

namespace attnscope::cuda {
namespace {

using Bits = std::uint16_t;
using Params = as_compress_insert_params;

constexpr int kThreads = 128;
constexpr int kMaxRows = 128;

// Channels of one thread.
template <int n>
struct Channels {
  float v[n];
};

template <int n>
__device__ __forceinline__ Channels<n> load(const float* from) {
  Channels<n> c;
  if constexpr (n == 4) {
    const float4 four = *reinterpret_cast<const float4*>(from);
    c.v[0] = four.x;
    c.v[1] = four.y;
    c.v[2] = four.z;
    c.v[3] = four.w;
  } else {
    c.v[0] = *from;
  }
  return c;
}

// The rows that an entry pools, oldest first. Rows of positions before 0 are left out.
struct Window {
  const float* values[kMaxRows];  // of the channels that this row contributes
  int first;
  int count;
};

template <int dim>
__device__ void find_window(const Params& p, const CacheView& state, std::int64_t t,
                            std::int64_t position, Window* w) {
  const int coff = p.ratio == 4 ? 2 : 1;
  const int count = coff * p.ratio;
  const std::int64_t oldest = position + 1 - count;
  const int request = *at<std::int32_t>(p.request_of, t);
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    const std::int64_t q = oldest + i;
    if (q < 0) continue;
    std::int64_t slot;
    if (p.state.addressing == AS_LOGICAL) {
      slot = *at<std::int32_t>(p.table, request) + q;
    } else {
      AS_DEVICE_CHECK(q / state.rows < p.table.shape[1]);
      slot = std::int64_t{*at<std::int32_t>(p.table, request, q / state.rows)} * state.rows +
             q % state.rows;
    }
    const unsigned char* row = cache_row(state, slot, 8 * coff * dim, 0).payload;
    // With overlap the older half of the rows gives its first channels, the newer its second.
    w->values[i] = reinterpret_cast<const float*>(row) + (i >= p.ratio ? dim : 0);
  }
  if (threadIdx.x == 0) {
    w->first = oldest < 0 ? static_cast<int>(-oldest) : 0;
    w->count = count;
  }
  __syncthreads();
}

// Softmax over the rows for each channel, weighted sum of the values. Real: float, or double where
// the result is rounded to bf16 at once and must fall on the right side.
template <class Real, int n>
__device__ void pool(const Window& w, int channel, int gate_offset, Real* pooled) {
  float best[n];
  Real weights[n], sums[n];
#pragma unroll
  for (int k = 0; k < n; ++k) {
    best[k] = __uint_as_float(0xff800000u);
    weights[k] = sums[k] = Real{0};
  }
#pragma unroll 8
  for (int i = w.first; i < w.count; ++i) {
    const Channels<n> gate = load<n>(w.values[i] + gate_offset + channel);
#pragma unroll
    for (int k = 0; k < n; ++k) best[k] = fmaxf(best[k], gate.v[k]);
  }
#pragma unroll 4
  for (int i = w.first; i < w.count; ++i) {
    const Channels<n> gate = load<n>(w.values[i] + gate_offset + channel);
    const Channels<n> value = load<n>(w.values[i] + channel);
#pragma unroll
    for (int k = 0; k < n; ++k) {
      const Real e = exp(static_cast<Real>(gate.v[k]) - static_cast<Real>(best[k]));
      weights[k] += e;
      sums[k] += e * static_cast<Real>(value.v[k]);
    }
  }
#pragma unroll
  for (int k = 0; k < n; ++k) pooled[k] = sums[k] / weights[k];
}

template <int n>
__device__ void pool_and_norm(const Params& p, const Window& w, int channel, int gate_offset,
                              int dim, float* y) {
  pool<float, n>(w, channel, gate_offset, y);
  float squares = 0.0f;
#pragma unroll
  for (int k = 0; k < n; ++k) squares = fmaf(y[k], y[k], squares);
  const float factor = inverse_rms(block_sum(squares), dim, p.eps);
#pragma unroll
  for (int k = 0; k < n; ++k) {
    y[k] = y[k] * factor * bf16_to_float(*at<Bits>(p.weight, channel + k));
  }
}

// The same with pooled and normed values rounded to bf16.
template <int n>
__device__ void pool_and_norm_rounded(const Params& p, const Window& w, int channel,
                                      int gate_offset, int dim, float* y) {
  double pooled[n];
  pool<double, n>(w, channel, gate_offset, pooled);
  double squares = 0.0;
#pragma unroll
  for (int k = 0; k < n; ++k) {
    y[k] = round_bf16(pooled[k]);
    squares += static_cast<double>(y[k]) * static_cast<double>(y[k]);
  }
  const double factor = 1.0 / sqrt(block_sum(squares) / static_cast<double>(dim) + p.eps);
#pragma unroll
  for (int k = 0; k < n; ++k) {
    const float weight = bf16_to_float(*at<Bits>(p.weight, channel + k));
    y[k] = round_bf16(static_cast<double>(y[k]) * factor * static_cast<double>(weight));
  }
}

// A block a token; tokens that emit nothing end at once.
template <int dim>
__global__ void __launch_bounds__(kThreads)
    compress_insert_kernel(Params p, CacheView state, CacheView cache) {
  constexpr int kPer = dim / kThreads;
  __shared__ Window window;
  __shared__ float row[dim];
  const std::int64_t t = blockIdx.x;
  const std::int64_t slot = *at<std::int64_t>(p.slots, t);
  if (slot < 0) return;
  const int channel = static_cast<int>(threadIdx.x) * kPer;
  if (p.rows_given != 0) {
#pragma unroll
    for (int k = 0; k < kPer; ++k)
      row[channel + k] = bf16_to_float(*at<Bits>(p.row, t, channel + k));
    __syncthreads();
  } else {
    const std::int64_t position = *at<std::int64_t>(p.positions, t);
    find_window<dim>(p, state, t, position, &window);
    const int gate_offset = (p.ratio == 4 ? 2 : 1) * dim;
    float y[kPer];
    if (p.round_pooled != 0) {
      pool_and_norm_rounded<kPer>(p, window, channel, gate_offset, dim, y);
    } else {
      pool_and_norm<kPer>(p, window, channel, gate_offset, dim, y);
    }
#pragma unroll
    for (int k = 0; k < kPer; ++k) row[channel + k] = y[k];
    __syncthreads();
    const std::int64_t angle = position + 1 - p.ratio;
    AS_DEVICE_CHECK(angle >= 0 && angle < p.rope.table.shape[0]);
    if (threadIdx.x < AS_ROPE_DIM / 2) {
      const int i = static_cast<int>(threadIdx.x);
      const int d = dim - AS_ROPE_DIM + 2 * i;
      const float* turn = at<float>(p.rope.table, angle);
      if (p.hadamard == AS_HADAMARD_ROUNDED) {
        rotate_pair_to_bf16(turn, i, &row[d], &row[d + 1]);
      } else {
        rotate_pair(turn, i, 1.0f, &row[d], &row[d + 1]);
      }
    }
    __syncthreads();
  }
  if (threadIdx.x >= 32) return;
  const int lane = static_cast<int>(threadIdx.x);
  if constexpr (dim == AS_HEAD_DIM) {
    float v[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int d = (i < 8 ? 0 : 256) + 8 * lane + i % 8;
      v[i] = round_bf16(row[d]);
      if (p.rows_given == 0 && present(p.row)) *at<Bits>(p.row, t, d) = float_to_bf16(v[i]);
    }
    insert_latent(v, cache_row(cache, slot, 576, 8), p.scale_floor);
  } else {
    float v[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = row[4 * lane + i];
    if (p.rows_given == 0 && p.hadamard != 0) {
      if (p.hadamard == AS_HADAMARD_ROUNDED) {
#pragma unroll
        for (float& value : v) value = round_bf16(value);
      }
      hadamard(v);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      v[i] = round_bf16(v[i]);
      if (p.rows_given == 0 && present(p.row)) {
        *at<Bits>(p.row, t, 4 * lane + i) = float_to_bf16(v[i]);
      }
    }
    const bool fp8 = p.cache.record == AS_RECORD_INDEX_FP8;
    insert_index(v, p.cache.record, cache_row(cache, slot, fp8 ? 128 : 64, 4), p.scale_floor,
                 p.fp4_rule);
  }
}

}  // namespace

int compress_insert(const Params& p, const Launch& launch) {
  const std::int64_t tokens = p.slots.shape[0];
  if (tokens == 0) return 0;
  const auto stream = static_cast<cudaStream_t>(launch.stream);
  const auto blocks = static_cast<unsigned>(tokens);
  const CacheView state = p.rows_given != 0 ? CacheView{} : cache_view(p.state);
  if (p.cache.record == AS_RECORD_LATENT) {
    compress_insert_kernel<AS_HEAD_DIM>
        <<<blocks, kThreads, 0, stream>>>(p, state, cache_view(p.cache));
  } else {
    compress_insert_kernel<AS_INDEX_DIM>
        <<<blocks, kThreads, 0, stream>>>(p, state, cache_view(p.cache));
  }
  return launch_status();
}

}  // namespace attnscope::cuda
