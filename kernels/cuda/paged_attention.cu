// paged_attention on fp32 units: a warp a query head of a token, the heads of a KV head side by
// side in a block so that they find its rows in the L1 cache. 32 rows at a time: a lane scores a
// row, then each lane weighs its dims of their values. The context may be cut into parts, one a
// block; a second kernel merges them by LSE.
//
// No tensor cores: decode steps are bound by memory, long prefills are slow.
#include <cuda_fp16.h>

#include <algorithm>

#include "kernels/cpu/kv_pages.h"
#include "kernels/cuda/codec.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"

namespace attnscope::cuda {
namespace {

using I64 = std::int64_t;

constexpr I64 kHeads = 8;  // of a block
constexpr I64 kMaxSplits = 256;
constexpr I64 kRowsOfSplit = 256;  // below that a part is not worth its merge
constexpr I64 kOthers = 2;         // of a partial result: maximum and sum

struct Numbers {
  cpu::KvPages k, v;
  I64 rows_total;  // of the smaller cache
  I64 group, head_blocks;
  I64 splits;
  bool paged;
};

__device__ __forceinline__ const std::uint16_t* row_of(const as_paged_attention_params& p,
                                                       const Numbers& n, const cpu::KvPages& c,
                                                       I64 request, I64 row, I64 head) {
  I64 slot;
  if (n.paged) {
    AS_DEVICE_CHECK(row / c.rows < p.table.shape[1]);
    slot = I64{*at<std::int32_t>(p.table, request, row / c.rows)} * c.rows + row % c.rows;
  } else {
    slot = I64{*at<std::int32_t>(p.table, request)} + row;
  }
  AS_DEVICE_CHECK(slot >= 0 && slot < n.rows_total);
  return c.base + slot / c.rows * c.page + slot % c.rows * c.row + head * c.head;
}

__device__ __forceinline__ float number(std::uint16_t bits, bool f16) {
  return f16 ? __half2float(__ushort_as_half(bits)) : bf16_to_float(bits);
}

template <bool vectors>
__device__ __forceinline__ float dot(const float* q, const std::uint16_t* k, I64 size, bool f16) {
  float sum = 0.0f;
  if constexpr (vectors) {
    for (I64 d = 0; d < size; d += 8) {
      const uint4 word = *reinterpret_cast<const uint4*>(k + d);
      const std::uint32_t parts[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sum = fmaf(q[d + 2 * i], number(static_cast<std::uint16_t>(parts[i]), f16), sum);
        sum = fmaf(q[d + 2 * i + 1], number(static_cast<std::uint16_t>(parts[i] >> 16), f16), sum);
      }
    }
  } else {
    for (I64 d = 0; d < size; ++d) sum = fmaf(q[d], number(k[d], f16), sum);
  }
  return sum;
}

__device__ __forceinline__ float minus_infinity() { return __uint_as_float(0xff800000u); }

// The first row that a token at this position sees.
__device__ __forceinline__ I64 first_seen(const as_paged_attention_params& p, I64 position) {
  I64 first = p.window > 0 ? max(I64{0}, position - p.window + 1) : I64{0};
  if (p.chunk > 0) first = max(first, position / p.chunk * p.chunk);
  return first;
}

// The result of a head over all its rows, or an empty one.
__device__ __forceinline__ void put_result(const as_paged_attention_params& p, I64 t, I64 h,
                                           bool any, float best, float sum, const float* values,
                                           int count) {
  float total = sum;
  const float shift = best == minus_infinity() ? 0.0f : best;
  if (present(p.sinks)) total += expf(*at<float>(p.sinks, h) - shift);
  std::uint16_t* o = at<std::uint16_t>(p.o, t, h);
  for (int i = 0; i < count; ++i) {
    const I64 d = threadIdx.x + 32 * i;
    if (d < p.o.shape[2]) o[d] = any ? float_to_bf16(values[i] / total) : std::uint16_t{0};
  }
  if (threadIdx.x == 0) *at<float>(p.lse, t, h) = any ? shift + logf(sum) : minus_infinity();
}

// kPart: values of a lane. Grid: tokens, KV heads times blocks of their heads, splits.
template <int kPart, bool vectors>
__global__ void __launch_bounds__(32 * kHeads)
    paged_attention_kernel(as_paged_attention_params p, Numbers n, float* partial) {
  __shared__ float queries[kHeads][32 * kPart];
  const I64 t = blockIdx.x, g = blockIdx.y / n.head_blocks;
  const I64 in_group = blockIdx.y % n.head_blocks * kHeads + threadIdx.y;
  if (in_group >= n.group) return;
  const I64 h = g * n.group + in_group, size = p.q.shape[2], size_v = p.o.shape[2];
  float* q = queries[threadIdx.y];
  for (I64 d = threadIdx.x; d < size; d += 32)
    q[d] = bf16_to_float(*at<std::uint16_t>(p.q, t, h, d));
  __syncwarp();

  const I64 request = *at<std::int32_t>(p.token_to_req, t);
  I64 first = 0, end = 0, position = 0;
  if (request >= 0) {
    AS_DEVICE_CHECK(request < p.table.shape[0]);
    position = *at<std::int64_t>(p.positions, t);
    end = *at<std::int32_t>(p.seq_lens, request);
    if (p.causal != 0) end = min(end, position + 1);
    first = first_seen(p, position);
  }
  const bool any = first < end;
  if (n.splits > 1) {
    const I64 rows = end > first ? (end - first + n.splits - 1) / n.splits : 0;
    first += rows * blockIdx.z;
    end = min(end, first + rows);
  }

  float best = minus_infinity(), sum = 0.0f;
  float values[kPart];
#pragma unroll
  for (int i = 0; i < kPart; ++i) values[i] = 0.0f;
  const auto scale = static_cast<float>(p.scale), cap = static_cast<float>(p.soft_cap);
  const float slope = present(p.alibi_slopes) ? *at<float>(p.alibi_slopes, h) : 0.0f;
  for (I64 tile = first; tile < end; tile += 32) {
    const I64 row = tile + threadIdx.x;
    const bool mine = row < end;
    float score = minus_infinity();
    if (mine) {
      score = dot<vectors>(q, row_of(p, n, n.k, request, row, g), size, n.k.f16) * scale;
      if (cap > 0.0f) score = cap * tanhf(score / cap);
      if (slope != 0.0f)
        score -= slope * static_cast<float>(position > row ? position - row : row - position);
    }
    const float larger = fmaxf(best, warp_max(score));
    const float shift = larger == minus_infinity() ? 0.0f : larger;
    const float weight = mine ? expf(score - shift) : 0.0f;
    const float old = best == minus_infinity() ? 0.0f : expf(best - shift);
    sum = sum * old + warp_sum(weight);
    best = larger;
#pragma unroll
    for (int i = 0; i < kPart; ++i) values[i] *= old;
    const int rows = static_cast<int>(min(I64{32}, end - tile));
    for (int r = 0; r < rows; ++r) {
      const float w = __shfl_sync(kAllLanes, weight, r);
      const std::uint16_t* v = row_of(p, n, n.v, request, tile + r, g);
#pragma unroll
      for (int i = 0; i < kPart; ++i) {
        const I64 d = threadIdx.x + 32 * i;
        if (d < size_v) values[i] = fmaf(w, number(v[d], n.v.f16), values[i]);
      }
    }
  }
  if (n.splits == 1) return put_result(p, t, h, any, best, sum, values, kPart);
  float* to = partial + ((t * p.q.shape[1] + h) * n.splits + blockIdx.z) * (size_v + kOthers);
  if (threadIdx.x == 0) {
    to[0] = best;
    to[1] = sum;
  }
#pragma unroll
  for (int i = 0; i < kPart; ++i) {
    const I64 d = threadIdx.x + 32 * i;
    if (d < size_v) to[kOthers + d] = values[i];
  }
}

// A warp a head of a token.
template <int kPart>
__global__ void __launch_bounds__(32 * kHeads)
    merge_parts_kernel(as_paged_attention_params p, Numbers n, const float* partial) {
  const I64 heads = p.q.shape[1], size_v = p.o.shape[2];
  const I64 item = I64{blockIdx.x} * kHeads + threadIdx.y;
  if (item >= p.q.shape[0] * heads) return;
  const float* from = partial + item * n.splits * (size_v + kOthers);
  float best = minus_infinity(), sum = 0.0f;
  for (I64 s = 0; s < n.splits; ++s) best = fmaxf(best, from[s * (size_v + kOthers)]);
  const float shift = best == minus_infinity() ? 0.0f : best;
  float values[kPart];
#pragma unroll
  for (int i = 0; i < kPart; ++i) values[i] = 0.0f;
  for (I64 s = 0; s < n.splits; ++s) {
    const float* part = from + s * (size_v + kOthers);
    const float weight = part[0] == minus_infinity() ? 0.0f : expf(part[0] - shift);
    if (weight == 0.0f && part[1] == part[1]) continue;
    sum = fmaf(part[1], weight, sum);
#pragma unroll
    for (int i = 0; i < kPart; ++i) {
      const I64 d = threadIdx.x + 32 * i;
      if (d < size_v) values[i] = fmaf(part[kOthers + d], weight, values[i]);
    }
  }
  const I64 t = item / heads, request = *at<std::int32_t>(p.token_to_req, t);
  bool any = false;
  if (request >= 0) {
    const I64 position = *at<std::int64_t>(p.positions, t);
    I64 end = *at<std::int32_t>(p.seq_lens, request);
    if (p.causal != 0) end = min(end, position + 1);
    any = end > first_seen(p, position);
  }
  put_result(p, t, item % heads, any, best, sum, values, kPart);
}

I64 head_blocks_of(const as_paged_attention_params& p) {
  const I64 group = p.q.shape[1] / as_cache_heads(&p.k_cache);
  return (group + kHeads - 1) / kHeads;
}

// As many parts as fill the GPU, of a size that is worth it: by shapes alone.
I64 splits_of(const as_paged_attention_params& p, const Gpu& gpu) {
  if (p.num_splits > 0) return std::min<I64>(p.num_splits, kMaxSplits);
  const I64 blocks = p.q.shape[0] * as_cache_heads(&p.k_cache) * head_blocks_of(p);
  if (blocks == 0 || p.k_cache.addressing != AS_PAGED) return 1;
  I64 rows = p.table.shape[1] * p.k_cache.rows_per_block;
  if (p.window > 0) rows = std::min<I64>(rows, p.window);
  if (p.chunk > 0) rows = std::min<I64>(rows, p.chunk);
  const I64 useful = std::max<I64>(1, rows / kRowsOfSplit);
  return std::clamp<I64>(4 * gpu.multiprocessors / blocks, 1, std::min(useful, kMaxSplits));
}

template <int kPart>
int attend(const as_paged_attention_params& p, const Numbers& n, bool vectors,
           const Launch& launch) {
  const dim3 grid(static_cast<unsigned>(p.q.shape[0]),
                  static_cast<unsigned>(as_cache_heads(&p.k_cache) * n.head_blocks),
                  static_cast<unsigned>(n.splits));
  const auto warps = static_cast<unsigned>(std::min(n.group, kHeads));
  const auto stream = static_cast<cudaStream_t>(launch.stream);
  auto* partial = reinterpret_cast<float*>(launch.workspace);
  const auto kernel =
      vectors ? paged_attention_kernel<kPart, true> : paged_attention_kernel<kPart, false>;
  kernel<<<grid, dim3(32, warps), 0, stream>>>(p, n, partial);
  if (n.splits > 1) {
    const I64 items = p.q.shape[0] * p.q.shape[1];
    const auto blocks = static_cast<unsigned>((items + kHeads - 1) / kHeads);
    merge_parts_kernel<kPart><<<blocks, dim3(32, kHeads), 0, stream>>>(p, n, partial);
  }
  return static_cast<int>(cudaGetLastError());
}

}  // namespace

std::size_t workspace_bytes(const as_paged_attention_params& p, const Gpu& gpu) {
  const I64 splits = splits_of(p, gpu);
  if (splits == 1) return 0;
  return static_cast<std::size_t>(p.q.shape[0] * p.q.shape[1] * splits * (p.o.shape[2] + kOthers)) *
         sizeof(float);
}

int paged_attention(const as_paged_attention_params& p, const Launch& launch) {
  if (p.q.shape[0] == 0 || p.q.shape[1] == 0) return 0;
  Numbers n{};
  n.k = cpu::kv_pages(p.k_cache);
  n.v = cpu::kv_pages(p.v_cache);
  n.rows_total = std::min(cpu::cache_rows(p.k_cache), cpu::cache_rows(p.v_cache));
  n.group = p.q.shape[1] / as_cache_heads(&p.k_cache);
  n.head_blocks = head_blocks_of(p);
  n.splits = splits_of(p, launch.gpu);
  n.paged = p.k_cache.addressing == AS_PAGED;
  const I64 apart = n.k.page | n.k.row | n.k.head | p.q.shape[2];
  const bool vectors = reinterpret_cast<std::uintptr_t>(n.k.base) % 16 == 0 && apart % 8 == 0;
  const I64 largest = std::max(p.q.shape[2], p.o.shape[2]);
  if (largest <= 64) return attend<2>(p, n, vectors, launch);
  if (largest <= 128) return attend<4>(p, n, vectors, launch);
  if (largest <= 256) return attend<8>(p, n, vectors, launch);
  return attend<16>(p, n, vectors, launch);
}

}  // namespace attnscope::cuda
