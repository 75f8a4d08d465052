// copy_blocks: blocks copied or exchanged by pairs of ids. Sides may be pinned memory of the host,
// which the GPU reads and writes by itself: pairs on the GPU are known to it alone.
#include <algorithm>

#include "kernels/cuda/helper_ops.h"
#include "kernels/cuda/view.cuh"

namespace attnscope::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kPart = 64 * kThreads;  // bytes of a pair that a block moves

// T: the widest type that bases, strides and sizes are multiples of.
template <class T>
__global__ void __launch_bounds__(kThreads) copy_blocks_kernel(as_copy_blocks_params p) {
  const std::int64_t n = blockIdx.y;
  const std::int64_t source = *at<std::int64_t>(p.pairs, n, 0);
  const std::int64_t target = *at<std::int64_t>(p.pairs, n, 1);
  if (source < 0 || target < 0) return;
  AS_DEVICE_CHECK(source < p.from.shape[0] && target < p.to.shape[0]);
  auto* from = reinterpret_cast<T*>(at<unsigned char>(p.from, source));
  auto* to = reinterpret_cast<T*>(at<unsigned char>(p.to, target));
  constexpr std::int64_t kItems = kPart / sizeof(T);
  const std::int64_t begin = std::int64_t{blockIdx.x} * kItems;
  const std::int64_t all = p.from.shape[1] / static_cast<std::int64_t>(sizeof(T));
  const std::int64_t end = begin + kItems < all ? begin + kItems : all;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const T held = from[i];
    if (p.exchange != 0) from[i] = to[i];
    to[i] = held;
  }
}

}  // namespace

int copy_blocks(const as_copy_blocks_params& p, const Launch& launch) {
  const std::int64_t pairs = p.pairs.shape[0], bytes = p.from.shape[1];
  if (bytes == 0) return 0;
  const auto bits = reinterpret_cast<std::uintptr_t>(p.from.data) |
                    reinterpret_cast<std::uintptr_t>(p.to.data) |
                    static_cast<std::uintptr_t>(p.from.stride[0] | p.to.stride[0] | bytes);
  constexpr std::int64_t kMaxPairs = 65535;  // an axis of a grid
  for (std::int64_t first = 0; first < pairs; first += kMaxPairs) {
    as_copy_blocks_params some = p;
    some.pairs.data = static_cast<std::int64_t*>(p.pairs.data) + first * p.pairs.stride[0];
    const dim3 grid(static_cast<unsigned>((bytes + kPart - 1) / kPart),
                    static_cast<unsigned>(std::min(kMaxPairs, pairs - first)));
    const auto stream = static_cast<cudaStream_t>(launch.stream);
    if (bits % 16 == 0) {
      copy_blocks_kernel<uint4><<<grid, kThreads, 0, stream>>>(some);
    } else {
      copy_blocks_kernel<unsigned char><<<grid, kThreads, 0, stream>>>(some);
    }
    if (const int code = launch_status(); code != 0) return code;
  }
  return 0;
}

}  // namespace attnscope::cuda
