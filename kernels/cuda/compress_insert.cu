// compress_insert, indexer_compress_insert: pools a window of state rows into one entry, norm,
// RoPE, quantisation, insertion.
#include "kernels/cuda/early.cuh"
#include "kernels/cuda/insert.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/rope.cuh"

namespace attnscope::cuda {
namespace {

using Bits = std::uint16_t;
using Params = as_compress_insert_params;

constexpr int kThreads = 128;
constexpr int kMaxRows = 128;
constexpr int kResident = 6;     // blocks of 512 channels a multiprocessor
constexpr int kTokensApart = 2;  // tokens a multiprocessor up to which each has a block

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
  const int request = *at<std::int32_t>(p.token_to_req, t);
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
  follow_kernel_before();
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

// ---- ratio 4, from fp32 state rows

// Four e4m3 codes, nearest, ties to even, saturating; every NaN becomes 0x7f.
__device__ __forceinline__ std::uint32_t encode4(const float* x, float factor) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint16_t low, high;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
      : "=h"(low)
      : "f"(x[1] * factor), "f"(x[0] * factor));
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
      : "=h"(high)
      : "f"(x[3] * factor), "f"(x[2] * factor));
  return low | static_cast<std::uint32_t>(high) << 16;
#else
  return encode_e4m3x4(x, factor);
#endif
}

// Four neighbouring channels of a latent row, lane l of warp w holding dims 128w + 4l.. .
__device__ __forceinline__ void insert_latent_part(const float* v, int channel,
                                                   const RowAddress& to, int scale_floor) {
  float amax = 0.0f;
#pragma unroll
  for (int k = 0; k < 4; ++k) amax = larger(amax, v[k]);
  const int exponent = fp8_exponent(warp_max<16>(amax), scale_floor);
  if (channel >= AS_NOPE_DIM) {
    *reinterpret_cast<uint2*>(to.payload + AS_NOPE_DIM + 2 * (channel - AS_NOPE_DIM)) =
        make_uint2(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]));
    if (channel == AS_NOPE_DIM) to.scales[AS_QUANT_BLOCKS] = 0;
    return;
  }
  *reinterpret_cast<std::uint32_t*>(to.payload + channel) = encode4(v, encode_factor(exponent));
  if (channel % 64 == 0) to.scales[channel / 64] = exponent_to_ue8m0(exponent);
}

// The eight rows of the window of a position: the address of what each contributes.
template <int dim>
__device__ __forceinline__ void window_of_eight(const Params& p, const CacheView& state,
                                                std::int64_t request, std::int64_t oldest,
                                                const float* (&rows)[8]) {
  constexpr std::int64_t kRowBytes = 16 * dim;
  if (p.state.addressing == AS_LOGICAL) {
    const std::int64_t first = *at<std::int32_t>(p.table, request) + oldest;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const std::int64_t slot = first + max(i, static_cast<int>(-min(oldest, std::int64_t{0})));
      AS_DEVICE_CHECK(slot >= 0 && slot < state.rows_total);
      rows[i] = reinterpret_cast<const float*>(state.base + slot * state.page_stride);
    }
    return;
  }
  // Rows before position 0 stand for the one of position 0: they are read and not counted.
  const std::int64_t start = max(oldest, std::int64_t{0});
  std::int64_t column;
  int row;
  if ((state.rows & (state.rows - 1)) == 0) {
    column = start >> (31 - __clz(state.rows));
    row = static_cast<int>(start) & (state.rows - 1);
  } else {
    column = start / state.rows;
    row = static_cast<int>(start % state.rows);
  }
  std::int64_t pages[8];
  int in_page[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    AS_DEVICE_CHECK(column < p.table.shape[1]);
    pages[i] = *at<std::int32_t>(p.table, request, column);
    in_page[i] = row;
    if (oldest + i < 0) continue;
    if (++row == state.rows) {
      row = 0;
      if (i < 7) ++column;
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    AS_DEVICE_CHECK(pages[i] >= 0 && pages[i] * state.rows + in_page[i] < state.rows_total);
    rows[i] = reinterpret_cast<const float*>(state.base + pages[i] * state.page_stride +
                                             in_page[i] * kRowBytes);
  }
}

// dim / 4 threads a token, four channels each; a block goes through `tokens` tokens, at most 32,
// that follow each other, of which a chunk of a prompt emits one in four.
template <int dim>
__global__ void __launch_bounds__(dim / 4, dim == AS_HEAD_DIM ? kResident : 1)
    compress4_kernel(Params p, CacheView state, CacheView cache, int tokens) {
  follow_kernel_before();
  constexpr int kWarps = dim / 128;
  __shared__ float parts[2][kWarps];  // in turns
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int channel = static_cast<int>(threadIdx.x) * 4;
  const std::int64_t first = std::int64_t{blockIdx.x} * tokens;
  std::int64_t slot_of_lane = -1, position_of_lane = 0;
  int request_of_lane = 0;
  if (lane < tokens && first + lane < p.slots.shape[0]) {
    slot_of_lane = *at<std::int64_t>(p.slots, first + lane);
    position_of_lane = *at<std::int64_t>(p.positions, first + lane);
    request_of_lane = *at<std::int32_t>(p.token_to_req, first + lane);
  }
  float weight[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) weight[k] = bf16_to_float(*at<Bits>(p.weight, channel + k));
  int turn = 0;
#pragma unroll 1
  for (std::uint32_t emitting = __ballot_sync(kAllLanes, slot_of_lane >= 0); emitting != 0u;
       emitting &= emitting - 1) {
    const int i = __ffs(static_cast<int>(emitting)) - 1;
    const std::int64_t slot = __shfl_sync(kAllLanes, slot_of_lane, i);
    const std::int64_t position = __shfl_sync(kAllLanes, position_of_lane, i);
    const int request = __shfl_sync(kAllLanes, request_of_lane, i);
    const std::int64_t angle = position - 3;
    const float* rows[8];
    window_of_eight<dim>(p, state, request, position - 7, rows);
    Channels<4> gates[8], values[8];
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const float* row = rows[r] + (r >= 4 ? dim : 0) + channel;
      gates[r] = load<4>(row + 2 * dim);
      values[r] = load<4>(row);
    }
    AS_DEVICE_CHECK(angle >= 0 && angle < p.rope.table.shape[0]);
    const bool turned = channel >= dim - AS_ROPE_DIM;
    const int pair = turned ? (channel - (dim - AS_ROPE_DIM)) / 2 : 0;
    float cosine[2], sine[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      cosine[k] = turned ? at<float>(p.rope.table, angle)[pair + k] : 0.0f;
      sine[k] = turned ? at<float>(p.rope.table, angle)[AS_ROPE_DIM / 2 + pair + k] : 0.0f;
    }
    float y[4];
    float squares = 0.0f;
    const bool whole = position >= 7;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float best = __uint_as_float(0xff800000u);
#pragma unroll
      for (int r = 0; r < 8; ++r) {
        if (r >= 4 || whole) best = fmaxf(best, gates[r].v[k]);
      }
      float sum = 0.0f, weights = 0.0f;
#pragma unroll
      for (int r = 0; r < 8; ++r) {
        if (r < 4 && !whole) continue;
        const float e = expf(gates[r].v[k] - best);
        weights += e;
        sum += e * values[r].v[k];
      }
      y[k] = sum / weights;
      squares = fmaf(y[k], y[k], squares);
    }
    squares = warp_sum(squares);
    if constexpr (kWarps > 1) {
      if (lane == 0) parts[turn][warp] = squares;
      __syncthreads();
      squares = parts[turn][0];
#pragma unroll
      for (int w = 1; w < kWarps; ++w) squares += parts[turn][w];
      turn ^= 1;
    }
    const auto factor = static_cast<float>(rsqrt(static_cast<double>(squares) / dim + p.eps));
#pragma unroll
    for (int k = 0; k < 4; ++k) y[k] = y[k] * factor * weight[k];
    if (turned) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const float turn[2] = {cosine[k], sine[k]};
        const float even = y[2 * k], odd = y[2 * k + 1];
        y[2 * k] = __fsub_rn(__fmul_rn(even, turn[0]), __fmul_rn(odd, turn[1]));
        y[2 * k + 1] = __fadd_rn(__fmul_rn(even, turn[1]), __fmul_rn(odd, turn[0]));
      }
    }
    if constexpr (dim == AS_INDEX_DIM) {
      if (p.hadamard != AS_HADAMARD_OFF) hadamard(y);
    }
    const std::int64_t t = first + i;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      y[k] = round_bf16(y[k]);
      if (present(p.row)) *at<Bits>(p.row, t, channel + k) = float_to_bf16(y[k]);
    }
    if constexpr (dim == AS_HEAD_DIM) {
      insert_latent_part(y, channel, cache_row(cache, slot, 576, 8), p.scale_floor);
    } else {
      const bool fp8 = p.cache.record == AS_RECORD_INDEX_FP8;
      insert_index(y, p.cache.record, cache_row(cache, slot, fp8 ? 128 : 64, 4), p.scale_floor,
                   p.fp4_rule);
    }
  }
}

template <int dim>
int compress4(const Params& p, const Launch& launch) {
  const std::int64_t tokens = p.slots.shape[0];
  const CacheView state = cache_view(p.state), cache = cache_view(p.cache);
  // Few tokens: all at once. Many: most emit nothing, and blocks that do nothing cost time.
  const int apart = tokens <= kTokensApart * launch.gpu.multiprocessors ? 1 : 4;
  return launch_early(launch.gpu.hopper, launch.stream,
                      static_cast<unsigned>((tokens + apart - 1) / apart), dim / 4, 0,
                      compress4_kernel<dim>, p, state, cache, apart);
}

}  // namespace

int compress_insert(const Params& p, const Launch& launch) {
  const std::int64_t tokens = p.slots.shape[0];
  if (tokens == 0) return 0;
  if (p.ratio == 4 && p.rows_given == 0 && p.round_pooled == 0 &&
      p.hadamard != AS_HADAMARD_ROUNDED) {
    return p.cache.record == AS_RECORD_LATENT ? compress4<AS_HEAD_DIM>(p, launch)
                                              : compress4<AS_INDEX_DIM>(p, launch);
  }
  const auto blocks = static_cast<unsigned>(tokens);
  const CacheView state = p.rows_given != 0 ? CacheView{} : cache_view(p.state);
  const auto kernel = p.cache.record == AS_RECORD_LATENT ? compress_insert_kernel<AS_HEAD_DIM>
                                                         : compress_insert_kernel<AS_INDEX_DIM>;
  return launch_early(launch.gpu.hopper, launch.stream, blocks, kThreads, 0, kernel, p, state,
                      cache_view(p.cache));
}

}  // namespace attnscope::cuda
