// The k best of a row for a cluster of blocks that reads the row once.
//
// Each block has a piece of the row. A long piece is read in tiles: of the first one, the k-th best
// of the threads' own bests bounds the k-th best of all from below, and only entries not below the
// bound are kept, in order, in shared memory; a full list is cut to its k best, which raises the
// bound. What is left, a few keys a thread, is selected from exactly by histograms of 12, 12 and 8
// bits that all blocks add up, and written in order of entry.
//
// In a piece that is not tiled, lanes hold groups of four neighbouring entries, a warp's groups
// follow each other.
#pragma once

#include "kernels/cuda/early.cuh"
#include "kernels/cuda/topk_tiles.cuh"

namespace attnscope::cuda::topk {

// Writes the chosen entries of the piece of `length` scores that begins at `begin`, `per` or fewer
// a thread.
template <int pieces, int per, class Memory>
__device__ __forceinline__ void select_held(Memory& s, const float* scores, int begin, int length,
                                            bool vector, std::uint32_t k, std::int32_t* out) {
  int turn = 0, count_turn = 0;
  std::uint32_t keys[per];
  const Spread from(0, Spread::of_warp(length), length);
  float score[per];
  load_scores(scores, from, vector, score);
#pragma unroll
  for (int j = 0; j < per; ++j) keys[j] = from.has(j) ? order_key(score[j]) : 0u;
  __syncthreads();
  all_began<pieces>();
  const Cut cut = find_cut<pieces, per>(
      s, [&](int j) { return keys[j]; }, k, &turn);
  std::uint32_t above = 0, ties = 0;
#pragma unroll
  for (int j = 0; j < per; ++j) above |= keys[j] > cut.key ? 1u << j : 0u;
  if (cut.ties != 0u) {
#pragma unroll
    for (int j = 0; j < per; ++j) ties |= keys[j] == cut.key ? 1u << j : 0u;
  }
  Counts counts = count_chosen(s, above, ties, &count_turn);
  const uint2 before = chosen_before<pieces>(s, counts.all_above, counts.all_ties);
  counts.above += before.x;
  counts.ties += before.y;
  place<per>(above, ties, cut.ties, counts,
             [&](int j, std::uint32_t to) { out[to] = begin + from.entry(j); });
}

// per: keys of a thread of a piece that is not tiled.
template <int pieces, int per, bool tiled>
__device__ __forceinline__ void select(const as_indexer_topk_params& p) {
  static_assert(per % 4 == 0 && per <= kTile && (!tiled || per == kPer));
  extern __shared__ __align__(16) unsigned char memory[];
  auto& s = *reinterpret_cast<Shared<pieces, tiled>*>(memory);
  const int rank = rank_in_cluster<pieces>();
  const std::int64_t t = blockIdx.x / static_cast<unsigned>(pieces);
  clear(s, 0);
  begin_exchange<pieces>(s);
  if (threadIdx.x == 0) prefetch(at<std::int32_t>(p.lens, t));
  follow_kernel_before();
  const int count = *at<std::int32_t>(p.lens, t);
  const int k = static_cast<int>(p.indices.shape[1]);
  const float* row = at<float>(p.logits, t);
  std::int32_t* out = at<std::int32_t>(p.indices, t);
  AS_DEVICE_CHECK(count >= 0 && count <= p.logits.shape[1]);
  if (count <= k) {
    all_began<pieces>();
    if (rank > 0) return;
    for (int i = static_cast<int>(threadIdx.x); i < k; i += kThreads) out[i] = i < count ? i : -1;
    return;
  }
  const int piece = ((count + pieces - 1) / pieces + 31) / 32 * 32;
  const int begin = min(rank * piece, count), length = min(begin + piece, count) - begin;
  if constexpr (tiled) {
    select_tiled<pieces>(s, row + begin, begin, length, piece > kList,
                         static_cast<std::uint32_t>(k), out);
  } else {
    const bool vector = reinterpret_cast<std::uintptr_t>(row) % 16 == 0;
    select_held<pieces, per>(s, row + begin, begin, length, vector, static_cast<std::uint32_t>(k),
                             out);
  }
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
int launch(const as_indexer_topk_params& p, const Launch& how) {
  if (const cudaError_t error = allow<pieces, per, tiled>(); error != cudaSuccess) return error;
  cudaLaunchAttribute attributes[2] = {};
  const auto rows = static_cast<unsigned>(p.logits.shape[0]);
  cudaLaunchConfig_t config = configure<pieces, per, tiled>(rows, attributes);
  config.stream = static_cast<cudaStream_t>(how.stream);
  if (how.gpu.hopper) {
    cudaLaunchAttribute& last = attributes[config.numAttrs++];
    last.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    last.val.programmaticStreamSerializationAllowed = 1;
  }
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
