// The k best of a row for a cluster of blocks that reads the row once.
//
// Each block has a piece of the row. A long piece is read in tiles: of the first one, the k-th best
// of the threads' own bests bounds the k-th best of all from below, and only entries not below the
// bound are kept, in order, in shared memory; a full list is cut to its k best, which raises the
// bound. What is left, a few keys a thread, is selected from exactly by histograms of 12, 12 and 8
// bits that all blocks add up, and written in order of entry.
//
// Lanes hold groups of four neighbouring entries, a warp's groups follow each other.
#pragma once

#include "kernels/cuda/topk_count.cuh"

namespace attnscope::cuda::topk {

// Copies of the lane's entries on their way into shared memory, a place a group.
__device__ __forceinline__ void copy16(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address_of(to)), "l"(from)
               : "memory");
}
__device__ __forceinline__ void copy4(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address_of(to)), "l"(from)
               : "memory");
}
__device__ __forceinline__ void end_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int later>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(later) : "memory");
}
__device__ __forceinline__ void copy_scores(const float* scores, const Spread& at, bool vector,
                                            float4* places) {
#pragma unroll
  for (int g = 0; g < kTile / 4; ++g) {
    float4* to = places + g * kThreads + threadIdx.x;
    const float* from = scores + at.entry(4 * g);
    if (vector && at.has(4 * g + 3)) {
      copy16(to, from);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (at.has(4 * g + i)) copy4(reinterpret_cast<float*>(to) + i, from + i);
      }
    }
  }
}

// Reads a piece of `length` scores in tiles; the list gets at least its min(k, length) best, and
// what of others was not known to be worse. Returns how many.
template <class Memory>
__device__ int fill_list(Memory& s, const float* scores, int length, bool vector, std::uint32_t k,
                         int* turn, int* count_turn) {
  constexpr int kStep = kTile * kThreads;
  const int chunk = min(Spread::of_warp(length), kTile * 32);
  auto fetch = [&](int begin, int place) {
    if (begin < length) copy_scores(scores, Spread(begin, chunk, length), vector, s.ahead[place]);
    end_copies();
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) fetch(i * kStep, i);
  int place_of_tile = 0;
  std::uint32_t floor = 1;  // keys below it are not among the best
  std::uint32_t listed = 0;
#pragma unroll 1
  for (int begin = 0; begin < length; begin += kStep) {
    const Spread at(begin, chunk, length);
    wait_copies<kAhead - 1>();
    float now[kTile];
#pragma unroll
    for (int j = 0; j < kTile; j += 4) {
      const float4 four = s.ahead[place_of_tile][j / 4 * kThreads + threadIdx.x];
      const float nan = __uint_as_float(0x7fc00000u);
      now[j] = at.has(j) ? four.x : nan;
      now[j + 1] = at.has(j + 1) ? four.y : nan;
      now[j + 2] = at.has(j + 2) ? four.z : nan;
      now[j + 3] = at.has(j + 3) ? four.w : nan;
    }
    fetch(begin + kAhead * kStep, place_of_tile);
    place_of_tile = (place_of_tile + 1) % kAhead;
    auto key = [&](int j) { return at.has(j) ? order_key(now[j]) : 0u; };
    if (begin == 0) {
      // Bests of one, two or four groups of a thread's entries: at least twice as many as k.
      std::uint32_t best[4] = {key(0), key(1), key(2), key(3)};
#pragma unroll
      for (int j = 4; j < kTile; ++j) best[j % 4] = max(best[j % 4], key(j));
      if (k <= kThreads) {
        best[0] = max(best[0], best[2]);
        best[1] = max(best[1], best[3]);
        best[2] = best[3] = 0;
      }
      if (2 * k <= kThreads) {
        best[0] = max(best[0], best[1]);
        best[1] = 0;
      }
      std::uint32_t* histogram = s.histogram[*turn];
#pragma unroll
      for (int g = 0; g < 4; ++g) {
        if (best[g] != 0u) atomicAdd(&histogram[best[g] >> (32 - kBits)], 1u);
      }
      clear(s, *turn ^ 1);
      __syncthreads();
      if (scan(s, histogram, k) >= k) floor = max(s.found.bin << (32 - kBits), 1u);
      *turn ^= 1;
    }
    auto not_below = [&](std::uint32_t bound) {
      std::uint32_t bits = 0;
      if (bound > kLowest) {
        const float limit = score_of(bound);  // no NaN reaches it
#pragma unroll
        for (int j = 0; j < kTile; ++j) bits |= now[j] >= limit ? 1u << j : 0u;
      } else {
#pragma unroll
        for (int j = 0; j < kTile; ++j) bits |= key(j) >= bound ? 1u << j : 0u;
      }
      return bits;
    };
    std::uint32_t above = not_below(floor), ties = 0, wanted = 0;
    Counts counts = count_chosen(s, above, ties, count_turn);
    if (listed + counts.all_above > kList) {
      if (listed > k) {
        const Spread from(0, Spread::of_warp(static_cast<int>(listed)), static_cast<int>(listed));
        std::uint32_t held[kPer];
        std::int32_t entries[kPer];
#pragma unroll
        for (int j = 0; j < kPer; ++j) {
          held[j] = from.has(j) ? s.keys[from.entry(j)] : 0u;
          entries[j] = from.has(j) ? s.entries[from.entry(j)] : 0;
        }
        const Cut cut = find_cut<1, kPer>(
            s, [&](int j) { return held[j]; }, k, turn);
        above = 0;
#pragma unroll
        for (int j = 0; j < kPer; ++j) {
          above |= held[j] > cut.key ? 1u << j : 0u;
          ties |= cut.ties != 0u && held[j] == cut.key ? 1u << j : 0u;
        }
        counts = count_chosen(s, above, ties, count_turn);  // all have read the list
        place<kPer>(above, ties, cut.ties, counts, [&](int j, std::uint32_t to) {
          s.keys[to] = held[j];
          s.entries[to] = entries[j];
        });
        listed = k;
        floor = max(floor, cut.key + 1u);
        above = not_below(floor);
        ties = 0;
        counts = count_chosen(s, above, ties, count_turn);
      }
      if (listed + counts.all_above > kList) {
        const Cut cut = find_cut<1, kTile>(s, key, k, turn);
        above = 0;
#pragma unroll
        for (int j = 0; j < kTile; ++j) {
          above |= key(j) > cut.key ? 1u << j : 0u;
          ties |= cut.ties != 0u && key(j) == cut.key ? 1u << j : 0u;
        }
        wanted = cut.ties;
        counts = count_chosen(s, above, ties, count_turn);
        floor = max(floor, cut.key + 1u);
      }
    }
    if ((above | ties) != 0u) {
      Counts from = counts;
      from.above += listed;
      place<kTile>(above, ties, wanted, from, [&](int j, std::uint32_t to) {
        s.keys[to] = order_key(now[j]);
        s.entries[to] = at.entry(j);
      });
    }
    listed += counts.all_above + min(counts.all_ties, wanted);
  }
  __syncthreads();
  return static_cast<int>(listed);
}

// per: keys of a thread of a piece that is not tiled.
template <int pieces, int per, bool tiled>
__device__ __forceinline__ void select(const as_indexer_topk_params& p) {
  static_assert(per % 4 == 0 && per <= kTile && (!tiled || per == kPer));
  extern __shared__ __align__(16) unsigned char memory[];
  auto& s = *reinterpret_cast<Shared<pieces, tiled>*>(memory);
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int rank = rank_in_cluster<pieces>();
  const std::int64_t t = blockIdx.x / static_cast<unsigned>(pieces);
  const int count = *at<std::int32_t>(p.lens, t);
  const int k = static_cast<int>(p.indices.shape[1]);
  const float* row = at<float>(p.logits, t);
  std::int32_t* out = at<std::int32_t>(p.indices, t);
  AS_DEVICE_CHECK(count >= 0 && count <= p.logits.shape[1]);
  if (count <= k) {
    if (rank > 0) return;
    for (int i = static_cast<int>(threadIdx.x); i < k; i += kThreads) out[i] = i < count ? i : -1;
    return;
  }
  const bool vector = reinterpret_cast<std::uintptr_t>(row) % 16 == 0;
  const int piece = ((count + pieces - 1) / pieces + 31) / 32 * 32;
  const int begin = min(rank * piece, count), length = min(begin + piece, count) - begin;
  const float* scores = row + begin;
  int turn = 0, count_turn = 0;
  std::uint32_t keys[per];
  int held = length;
  const bool listed = tiled && piece > kList;
  clear(s, 0);
  if constexpr (pieces > 1) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < 3; ++i) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address_of(&s.arrived[i]))
                     : "memory");
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
  }
  if (!listed) {
    const Spread from(0, Spread::of_warp(length), length);
    float score[per];
    load_scores(scores, from, vector, score);
#pragma unroll
    for (int j = 0; j < per; ++j) keys[j] = from.has(j) ? order_key(score[j]) : 0u;
    __syncthreads();
  }
  if constexpr (tiled) {
    if (listed) {
      __syncthreads();
      held =
          fill_list(s, scores, length, vector, static_cast<std::uint32_t>(k), &turn, &count_turn);
      const Spread from(0, Spread::of_warp(held), held);
#pragma unroll
      for (int j = 0; j < per; ++j) keys[j] = from.has(j) ? s.keys[from.entry(j)] : 0u;
    }
  }
  if constexpr (pieces > 1) asm volatile("barrier.cluster.wait;" ::: "memory");
  const Cut cut = find_cut<pieces, per>(
      s, [&](int j) { return keys[j]; }, static_cast<std::uint32_t>(k), &turn);
  std::uint32_t above = 0, ties = 0;
#pragma unroll
  for (int j = 0; j < per; ++j) above |= keys[j] > cut.key ? 1u << j : 0u;
  if (cut.ties != 0u) {
#pragma unroll
    for (int j = 0; j < per; ++j) ties |= keys[j] == cut.key ? 1u << j : 0u;
  }
  Counts counts = count_chosen(s, above, ties, &count_turn);
  if constexpr (pieces > 1) {
    const std::uint32_t arrived = address_of(&s.arrived[2]);
    if (warp == 0 && lane > rank && lane < pieces) {
      send(address_in(address_of(&s.before[rank]), lane),
           make_uint2(counts.all_above, counts.all_ties), address_in(arrived, lane));
    }
    if (rank > 0) {
      if (threadIdx.x == 0) expect(arrived, static_cast<std::uint32_t>(8 * rank));
      wait(arrived, 0);
    }
    const uint2 before = lane < rank ? s.before[lane] : make_uint2(0, 0);
    counts.above += __reduce_add_sync(kAllLanes, before.x);
    counts.ties += __reduce_add_sync(kAllLanes, before.y);
  }
  const Spread from(0, Spread::of_warp(held), held);
  place<per>(above, ties, cut.ties, counts, [&](int j, std::uint32_t to) {
    int entry = from.entry(j);
    if constexpr (tiled) {
      if (listed) entry = s.entries[entry];
    }
    out[to] = begin + entry;
  });
}

template <int pieces, int per, bool tiled>
__global__ void __launch_bounds__(kThreads, 1) select_kernel(as_indexer_topk_params p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  if constexpr (pieces == 1) select<pieces, per, tiled>(p);
#else
  select<pieces, per, tiled>(p);
#endif
}

template <int pieces, int per, bool tiled>
cudaLaunchConfig_t configure(unsigned rows, cudaLaunchAttribute* cluster) {
  cluster->id = cudaLaunchAttributeClusterDimension;
  cluster->val.clusterDim = {static_cast<unsigned>(pieces), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(rows * pieces);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = sizeof(Shared<pieces, tiled>);
  config.attrs = cluster;
  config.numAttrs = pieces > 1 ? 1 : 0;
  return config;
}

template <int pieces, int per, bool tiled>
cudaError_t allow() {
  static const cudaError_t kReady = [] {
    constexpr auto kKernel = select_kernel<pieces, per, tiled>;
    constexpr int kBytes = static_cast<int>(sizeof(Shared<pieces, tiled>));
    cudaError_t error =
        cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
    if (error == cudaSuccess && pieces > 8) {
      error = cudaFuncSetAttribute(kKernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    }
    return error;
  }();
  return kReady;
}

template <int pieces, int per, bool tiled>
int launch(const as_indexer_topk_params& p, cudaStream_t stream) {
  if (const cudaError_t error = allow<pieces, per, tiled>(); error != cudaSuccess) return error;
  cudaLaunchAttribute cluster{};
  const auto rows = static_cast<unsigned>(p.logits.shape[0]);
  cudaLaunchConfig_t config = configure<pieces, per, tiled>(rows, &cluster);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, select_kernel<pieces, per, tiled>, p);
}

// How many clusters of this many blocks run at once.
template <int pieces>
std::int64_t clusters_at_once() {
  static const int kClusters = [] {
    if (allow<pieces, kPer, true>() != cudaSuccess) return 0;
    cudaLaunchAttribute cluster{};
    const cudaLaunchConfig_t config = configure<pieces, kPer, true>(256, &cluster);
    int clusters = 0;
    if (cudaOccupancyMaxActiveClusters(&clusters, select_kernel<pieces, kPer, true>, &config) !=
        cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      return 0;
    }
    return clusters;
  }();
  return kClusters;
}

}  // namespace attnscope::cuda::topk
