// Kernels that are put in place while the one before them in their stream still runs, so that the
// time from the end of one to the start of the next is saved.
//
// Such a kernel calls wait_for_kernel_before() in every thread before it reads or writes global
// memory. let_next_start() allows the kernel after it to be put in place once every block has
// called it (or ended): behind the wait, so that one kernel at most waits on a multiprocessor.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <optional>

#include "kernels/cuda/ops.h"

namespace attnscope::cuda {

// All that kernels before this one in the stream have written may be read after this.
__device__ __forceinline__ void wait_for_kernel_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void let_next_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Both, at the start of a kernel that has nothing to do beforehand.
__device__ __forceinline__ void follow_kernel_before() {
  wait_for_kernel_before();
  let_next_start();
}

// `early`: the GPU is a Hopper and runs code made for it. `other`: an attribute more of the launch.
template <class... Params, class... Arguments>
int launch_early(bool early, void* stream, dim3 grid, dim3 block, std::size_t shared,
                 std::optional<cudaLaunchAttribute> other, void (*kernel)(Params...),
                 const Arguments&... arguments) {
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = attributes;
  if (other) attributes[config.numAttrs++] = *other;
  if (early) {
    cudaLaunchAttribute& last = attributes[config.numAttrs++];
    last.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    last.val.programmaticStreamSerializationAllowed = 1;
  }
  const cudaError_t code = cudaLaunchKernelEx(&config, kernel, Params(arguments)...);
  if (code != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return code;
  }
  return static_cast<int>(cudaGetLastError());
}
template <class... Params, class... Arguments>
int launch_early(bool early, void* stream, dim3 grid, dim3 block, std::size_t shared,
                 void (*kernel)(Params...), const Arguments&... arguments) {
  return launch_early(early, stream, grid, block, shared, std::nullopt, kernel, arguments...);
}

}  // namespace attnscope::cuda
