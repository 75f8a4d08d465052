// swap_out, swap_in: whole blocks between a cache and what is staged for host memory, or from it.
// Either side may be pinned memory of the host, which the GPU reads and writes by itself.
#include <algorithm>

#include "kernels/cuda/ops.h"
#include "kernels/cuda/view.cuh"

namespace attnscope::cuda {
namespace {

constexpr int kSwapThreads = 256;
constexpr std::int64_t kSwapPart = 64 * kSwapThreads;  // bytes of a block that a thread block moves

// T: the widest type that bases, strides and sizes are multiples of. out: from blocks to staged.
template <class T, bool out>
__global__ void __launch_bounds__(kSwapThreads)
    swap_blocks_kernel(as_tensor blocks, as_tensor ids, as_tensor staged) {
  const std::int64_t m = blockIdx.y, block = *at<std::int64_t>(ids, m);
  if (block < 0 && !out) return;
  AS_DEVICE_CHECK(block < blocks.shape[0]);
  constexpr std::int64_t kItems = kSwapPart / sizeof(T);
  const std::int64_t begin = std::int64_t{blockIdx.x} * kItems;
  const std::int64_t all = staged.shape[1] / static_cast<std::int64_t>(sizeof(T));
  const std::int64_t end = begin + kItems < all ? begin + kItems : all;
  auto* row = reinterpret_cast<T*>(at<unsigned char>(staged, m));
  auto* page = reinterpret_cast<T*>(at<unsigned char>(blocks, block < 0 ? 0 : block));
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kSwapThreads) {
    if constexpr (out) {
      row[i] = block < 0 ? T{} : page[i];
    } else {
      page[i] = row[i];
    }
  }
}

template <bool out>
int swap_blocks(const as_cache& cache, const as_tensor& ids, const as_tensor& staged,
                const Launch& launch) {
  const std::int64_t moves = ids.shape[0], bytes = cache.width;
  as_tensor blocks = cache.data;
  const auto bits = reinterpret_cast<std::uintptr_t>(blocks.data) |
                    reinterpret_cast<std::uintptr_t>(staged.data) |
                    static_cast<std::uintptr_t>(blocks.stride[0] | staged.stride[0] | bytes);
  constexpr std::int64_t kMostMoves = 65535;  // an axis of a grid
  for (std::int64_t first = 0; first < moves; first += kMostMoves) {
    as_tensor some = ids, rows = staged;
    some.data = static_cast<std::int64_t*>(ids.data) + first * ids.stride[0];
    rows.data = static_cast<unsigned char*>(staged.data) + first * staged.stride[0];
    const dim3 grid(static_cast<unsigned>((bytes + kSwapPart - 1) / kSwapPart),
                    static_cast<unsigned>(std::min(kMostMoves, moves - first)));
    const auto stream = static_cast<cudaStream_t>(launch.stream);
    if (bits % 16 == 0) {
      swap_blocks_kernel<uint4, out><<<grid, kSwapThreads, 0, stream>>>(blocks, some, rows);
    } else {
      swap_blocks_kernel<unsigned char, out><<<grid, kSwapThreads, 0, stream>>>(blocks, some, rows);
    }
    if (const int code = launch_status(); code != 0) return code;
  }
  return 0;
}

}  // namespace

int swap_out(const as_swap_out_params& p, const Launch& launch) {
  return swap_blocks<true>(p.blocks, p.from, p.staged, launch);
}

int swap_in(const as_swap_in_params& p, const Launch& launch) {
  return swap_blocks<false>(p.blocks, p.to, p.staged, launch);
}

}  // namespace attnscope::cuda
