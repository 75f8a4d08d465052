// Blocks of a cluster in one another's shared memory.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace attnscope::cuda {

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

}  // namespace attnscope::cuda
