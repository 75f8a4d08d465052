// Fresh blocks of a step, a few dozen of some ten kilobytes: one launch in the place of one each.
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/fill_pieces.h"

namespace attnscope::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::size_t kPart =
    std::size_t{16} * 8 * kThreads;   // bytes of a piece that a block fills
constexpr std::size_t kPieces = 128;  // of a launch

struct Pieces {
  std::int32_t ids[kPieces];
};

// T: the widest type that memory and pieces are multiples of.
template <class T>
__global__ void __launch_bounds__(kThreads)
    fill_pieces_kernel(unsigned char* memory, std::size_t bytes,
                       const __grid_constant__ Pieces pieces, T value) {
  auto* piece =
      reinterpret_cast<T*>(memory + static_cast<std::size_t>(pieces.ids[blockIdx.y]) * bytes);
  constexpr std::size_t kItems = kPart / sizeof(T);
  const std::size_t begin = blockIdx.x * kItems, all = bytes / sizeof(T);
  const std::size_t end = begin + kItems < all ? begin + kItems : all;
  for (std::size_t i = begin + threadIdx.x; i < end; i += kThreads) piece[i] = value;
}

}  // namespace

int fill_pieces(void* memory, std::size_t bytes, std::span<const std::int32_t> pieces, int byte,
                void* stream) {
  if (bytes == 0) return 0;
  auto* to = static_cast<unsigned char*>(memory);
  const auto code = static_cast<unsigned char>(byte);
  const unsigned word = 0x01010101u * code;
  const bool wide = (reinterpret_cast<std::uintptr_t>(memory) | bytes) % 16 == 0;
  for (; !pieces.empty(); pieces = pieces.subspan(std::min(kPieces, pieces.size()))) {
    const std::size_t count = std::min(kPieces, pieces.size());
    Pieces some{};
    std::copy_n(pieces.begin(), count, some.ids);
    const dim3 grid(static_cast<unsigned>((bytes + kPart - 1) / kPart),
                    static_cast<unsigned>(count));
    const auto on = static_cast<cudaStream_t>(stream);
    if (wide) {
      fill_pieces_kernel<uint4>
          <<<grid, kThreads, 0, on>>>(to, bytes, some, make_uint4(word, word, word, word));
    } else {
      fill_pieces_kernel<unsigned char><<<grid, kThreads, 0, on>>>(to, bytes, some, code);
    }
    if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess) return status;
  }
  return 0;
}

}  // namespace attnscope::cuda
