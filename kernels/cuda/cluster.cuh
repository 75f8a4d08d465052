// Blocks of a cluster in one another's shared memory.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace attnscope::cuda {

constexpr int kMostBlocks = 16;  // of a cluster, where sizes that are not portable are allowed

// A shared address of this block as that of block `rank` of its cluster.
__device__ __forceinline__ std::uint32_t address_in(std::uint32_t shared, int rank) {
  std::uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared), "r"(rank));
  return there;
}

// The attribute of a launch whose blocks along z, so many, are a cluster.
inline cudaLaunchAttribute cluster_of(int blocks) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {1, 1, static_cast<unsigned>(blocks)};
  return attribute;
}

// How many such clusters of a kernel run at once; 0 where the driver cannot say.
template <class... Params>
int clusters_at_once(void (*kernel)(Params...), int blocks, int threads, std::size_t shared) {
  cudaLaunchAttribute cluster = cluster_of(blocks);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1024, 1, static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared;
  config.attrs = &cluster;
  config.numAttrs = 1;
  int count = 0;
  if (cudaOccupancyMaxActiveClusters(&count, kernel, &config) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return 0;
  }
  return count;
}

// The same by size, from 1 to kMostBlocks; the kernel has been allowed them.
template <class... Params>
std::array<int, kMostBlocks + 1> clusters_by_size(void (*kernel)(Params...), int threads,
                                                  std::size_t shared) {
  std::array<int, kMostBlocks + 1> clusters{};
  for (int n = 1; n <= kMostBlocks; ++n) {
    clusters[static_cast<std::size_t>(n)] = clusters_at_once(kernel, n, threads, shared);
  }
  return clusters;
}

}  // namespace attnscope::cuda
