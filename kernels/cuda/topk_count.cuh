// The cut of a top-k by histograms, and the place of what it leaves: counts by lane, warp, block.
#pragma once

#include "kernels/cuda/topk_cluster.cuh"

namespace attnscope::cuda::topk {

template <class Memory>
__device__ __forceinline__ void clear(Memory& s, int which) {
  auto* to = reinterpret_cast<uint4*>(s.histogram[which]);
#pragma unroll
  for (int i = 0; i < kBins / 4 / kThreads; ++i) {
    to[i * kThreads + static_cast<int>(threadIdx.x)] = make_uint4(0, 0, 0, 0);
  }
}

// Finds, from the highest bin down, where the count reaches `left`. Returns the sum of all bins; if
// that is less than `left`, s.found has no meaning. Each thread has neighbouring bins, thread 0 the
// highest. The bins must be visible to the block.
template <class Memory>
__device__ std::uint32_t scan(Memory& s, const std::uint32_t* bins, std::uint32_t left) {
  constexpr int kBinsPer = kBins / kThreads;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int first = kBins - (static_cast<int>(threadIdx.x) + 1) * kBinsPer;
  std::uint32_t mine[kBinsPer], sum = 0;
#pragma unroll
  for (int i = 0; i < kBinsPer; i += 4) {
    const uint4 four = *reinterpret_cast<const uint4*>(bins + first + i);
    mine[i] = four.x;
    mine[i + 1] = four.y;
    mine[i + 2] = four.z;
    mine[i + 3] = four.w;
    sum += four.x + four.y + four.z + four.w;
  }
  const std::uint32_t own = __reduce_add_sync(kAllLanes, sum);
  if (lane == 0) s.warp_sum[warp] = own;
  __syncthreads();
  const std::uint32_t other = lane < kWarps ? s.warp_sum[lane] : 0u;
  std::uint32_t before = __reduce_add_sync(kAllLanes, lane < warp ? other : 0u);
  const std::uint32_t total = __reduce_add_sync(kAllLanes, other);
  if (before < left && left <= before + own) {
    std::uint32_t inclusive = sum;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const std::uint32_t lower = __shfl_up_sync(kAllLanes, inclusive, step);
      if (lane >= step) inclusive += lower;
    }
    before += inclusive - sum;
#pragma unroll
    for (int i = kBinsPer - 1; i >= 0; --i) {
      if (before < left && left <= before + mine[i]) {
        s.found = {static_cast<std::uint32_t>(first + i), left - before, mine[i]};
      }
      before += mine[i];
    }
  }
  __syncthreads();
  return total;
}

// The cut that leaves the k best of all keys of the block, or of the cluster; key(j) is the j-th of
// n of this thread. At least k keys are not 0. s.histogram[*turn] is zero and visible as such to
// the block, before and after.
template <int pieces, int n, class Memory, class Key>
__device__ Cut find_cut(Memory& s, const Key& key, std::uint32_t k, int* turn) {
  std::uint32_t prefix = 0, left = k;
  int shift = 32 - kBits;
#pragma unroll 1
  while (true) {
    std::uint32_t* histogram = s.histogram[*turn];
    const std::uint32_t bins = shift == 0 ? 255u : kBins - 1u;
    const std::uint32_t known = shift == 20 ? 0u : shift == 8 ? ~0u << 20 : ~0u << 8;
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const std::uint32_t one = key(j);
      if (one != 0u && (one & known) == prefix) atomicAdd(&histogram[(one >> shift) & bins], 1u);
    }
    clear(s, *turn ^ 1);
    __syncthreads();
    if constexpr (pieces > 1) add_up<pieces>(s, histogram, shift == 8 ? 1u : 0u);
    scan(s, pieces > 1 ? s.total : histogram, left);
    *turn ^= 1;
    const Found found = s.found;
    prefix |= found.bin << shift;
    left = found.left;
    if (found.count == left) return {max(prefix, 1u) - 1u, 0u};  // the whole bin
    if (shift == 0) return {prefix, left};
    shift = shift == 20 ? 8 : 0;
  }
}

// Bits of a thread's entries, counted: a byte a group of four.
struct Bytes {
  std::uint32_t before;  // in lanes before this one
  std::uint32_t warp;    // in all lanes, at most 128 a group
};
__device__ __forceinline__ Bytes count_groups(std::uint32_t bits) {
  if (!__any_sync(kAllLanes, bits != 0u)) return {0, 0};
  std::uint32_t n = bits - (bits >> 1 & 0x5555u);
  n = (n & 0x3333u) + (n >> 2 & 0x3333u);
  n = (n & 0xfu) | (n & 0xf0u) << 4 | (n & 0xf00u) << 8 | (n & 0xf000u) << 12;
  std::uint32_t inclusive = n;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const std::uint32_t lower = __shfl_up_sync(kAllLanes, inclusive, step);
    if (static_cast<int>(threadIdx.x % 32) >= step) inclusive += lower;
  }
  return {inclusive - n, __shfl_sync(kAllLanes, inclusive, 31)};
}
__device__ __forceinline__ std::uint32_t sum_bytes(std::uint32_t bytes) {
  return __dp4a(bytes, 0x01010101u, 0u);
}

// How many entries of these bits come before this warp's and in all.
struct Counts {
  Bytes of_above, of_ties;
  std::uint32_t above, ties;
  std::uint32_t all_above, all_ties;
};
template <class Memory>
__device__ Counts count_chosen(Memory& s, std::uint32_t above, std::uint32_t ties, int* turn) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  Counts c;
  c.of_above = count_groups(above);
  c.of_ties = count_groups(ties);
  if (lane == 0) {
    s.chosen[*turn][warp] = sum_bytes(c.of_above.warp) << 16 | sum_bytes(c.of_ties.warp);
  }
  __syncthreads();
  const std::uint32_t other = lane < kWarps ? s.chosen[*turn][lane] : 0u;
  // At most 16 entries a thread: sums stay below 2^16.
  const std::uint32_t before = __reduce_add_sync(kAllLanes, lane < warp ? other : 0u);
  const std::uint32_t all = __reduce_add_sync(kAllLanes, other);
  c.above = before >> 16;
  c.ties = before & 0xffffu;
  c.all_above = all >> 16;
  c.all_ties = all & 0xffffu;
  *turn ^= 1;
  return c;
}

// Calls put(j, place) for entries in `above` and the first `wanted` of those in `ties`, of n of
// this thread.
template <int n, class Put>
__device__ __forceinline__ void place(std::uint32_t above, std::uint32_t ties, std::uint32_t wanted,
                                      const Counts& c, const Put& put) {
  std::uint32_t first_above = c.above, first_ties = c.ties;
#pragma unroll
  for (int g = 0; g < n / 4; ++g) {
    if (((above | ties) >> 4 * g & 15u) != 0u) {
      std::uint32_t better = first_above + (c.of_above.before >> 8 * g & 255u);
      std::uint32_t equal = first_ties + (c.of_ties.before >> 8 * g & 255u);
#pragma unroll
      for (int j = 4 * g; j < 4 * g + 4; ++j) {
        const bool is_above = (above >> j & 1u) != 0u, is_tie = (ties >> j & 1u) != 0u;
        if (is_above || (is_tie && equal < wanted)) put(j, better + min(equal, wanted));
        better += is_above ? 1u : 0u;
        equal += is_tie ? 1u : 0u;
      }
    }
    first_above += c.of_above.warp >> 8 * g & 255u;
    first_ties += c.of_ties.warp >> 8 * g & 255u;
  }
}

// Where a lane's entries are among `length` that are spread over the warps.
struct Spread {
  int first;  // of this lane
  int end;    // of this warp
  __device__ __forceinline__ static int of_warp(int length) {
    return (length + 4 * kThreads - 1) / (4 * kThreads) * 128;
  }
  // The part that begins at `begin` and gives every warp `chunk` neighbouring entries.
  __device__ __forceinline__ Spread(int begin, int chunk, int length) {
    const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
    first = begin + warp * chunk + 4 * lane;
    end = min(begin + (warp + 1) * chunk, length);
  }
  __device__ __forceinline__ int entry(int j) const { return first + j / 4 * 128 + j % 4; }
  __device__ __forceinline__ bool has(int j) const { return entry(j) < end; }
};

// Scores of the lane's entries, NaN where there are none. vector: rows are aligned to 16 bytes.
template <int n>
__device__ __forceinline__ void load_scores(const float* scores, const Spread& at, bool vector,
                                            float (&to)[n]) {
  const float nan = __uint_as_float(0x7fc00000u);
  if (vector) {
#pragma unroll
    for (int j = 0; j < n; j += 4) {
      float4 four = make_float4(nan, nan, nan, nan);
      if (at.entry(j) + 3 < at.end) {
        four = *reinterpret_cast<const float4*>(scores + at.entry(j));
      } else if (at.has(j)) {
        four.x = scores[at.entry(j)];
        if (at.has(j + 1)) four.y = scores[at.entry(j + 1)];
        if (at.has(j + 2)) four.z = scores[at.entry(j + 2)];
      }
      to[j] = four.x;
      to[j + 1] = four.y;
      to[j + 2] = four.z;
      to[j + 3] = four.w;
    }
  } else {
#pragma unroll
    for (int j = 0; j < n; ++j) to[j] = at.has(j) ? scores[at.entry(j)] : nan;
  }
}

}  // namespace attnscope::cuda::topk
