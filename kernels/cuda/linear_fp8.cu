#include "kernels/cuda/insert.cuh"
#include "kernels/cuda/linear_fp8.h"

namespace attnscope::cuda {
namespace {

constexpr int kWarps = 4;

// A warp a block of 128 inputs.
__global__ void __launch_bounds__(32 * kWarps)
    quantise_rows_kernel(as_tensor x, unsigned char* codes, float* scales, bool vectors) {
  const std::int64_t rows = x.shape[0], blocks = x.shape[1] / kFp8Block;
  const std::int64_t item = std::int64_t{blockIdx.x} * kWarps + threadIdx.y;
  if (item >= rows * blocks) return;
  const std::int64_t t = item / blocks, block = item % blocks;
  const int lane = static_cast<int>(threadIdx.x);
  const std::uint16_t* in = at<std::uint16_t>(x, t, block * kFp8Block) + 4 * lane;
  alignas(8) std::uint16_t bits[4];
  if (vectors) {
    *reinterpret_cast<uint2*>(bits) = *reinterpret_cast<const uint2*>(in);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) bits[i] = in[i];
  }
  float values[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) values[i] = bf16_to_float(bits[i]);
  const int exponent =
      quantise_index_fp8(values, codes + t * x.shape[1] + block * kFp8Block, AS_SCALE_FLOOR_1E4);
  if (lane == 0) scales[block * rows + t] = exp2_int(exponent);
}

}  // namespace

int quantise_rows(const as_tensor& x, unsigned char* codes, float* scales, const Launch& launch) {
  const std::int64_t items = x.shape[0] * (x.shape[1] / kFp8Block);
  if (items == 0) return 0;
  const bool vectors = reinterpret_cast<std::uintptr_t>(x.data) % 8 == 0 && x.stride[0] % 4 == 0;
  quantise_rows_kernel<<<static_cast<unsigned>((items + kWarps - 1) / kWarps), dim3(32, kWarps), 0,
                         static_cast<cudaStream_t>(launch.stream)>>>(x, codes, scales, vectors);
  return launch_status();
}

}  // namespace attnscope::cuda
