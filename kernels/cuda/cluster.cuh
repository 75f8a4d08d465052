// Blocks of a cluster in one another's shared memory.
#pragma once

#include <cstdint>

namespace attnscope::cuda {

// A shared address of this block as that of block `rank` of its cluster.
__device__ __forceinline__ std::uint32_t address_in(std::uint32_t shared, int rank) {
  std::uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared), "r"(rank));
  return there;
}

}  // namespace attnscope::cuda
