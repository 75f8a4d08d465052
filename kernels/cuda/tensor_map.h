// Descriptions of tensors for Hopper's copy engine, which fetches boxes of them.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

namespace attnscope::cuda::hopper {

// cuTensorMapEncodeTiled of the driver, null where it has none.
inline decltype(&cuTensorMapEncodeTiled) tensor_map_encoder() {
  static const auto kEncode = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault,
                                         &found) != cudaSuccess) {
      entry = nullptr;
    }
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
  }();
  return kEncode;
}

}  // namespace attnscope::cuda::hopper
