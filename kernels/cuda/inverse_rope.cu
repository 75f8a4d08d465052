// inverse_rope: undoes the rotation that the values carry, at the query's position; with codes the
// result in FP8 too, by a kernel of its own.
#include "kernels/cuda/early.cuh"
#include "kernels/cuda/insert.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/rope.cuh"

namespace attnscope::cuda {
namespace {

// One pair of dims, turned back.
__device__ __forceinline__ void turn_back(const float* row, int pair, std::uint16_t* x) {
  float even = bf16_to_float(x[0]);
  float odd = bf16_to_float(x[1]);
  rotate_pair(row, pair, -1.0f, &even, &odd);
  x[0] = float_to_bf16(even);
  x[1] = float_to_bf16(odd);
}

// A thread takes eight neighbouring dims where rows are aligned and a multiple of eight long.
template <bool vectors>
__global__ void inverse_rope_kernel(as_inverse_rope_params p) {
  follow_kernel_before();
  const std::int64_t t = blockIdx.x;
  const std::int64_t h = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y;
  if (h >= p.o.shape[1]) return;
  const std::int64_t dim = p.o.shape[2];
  const std::int64_t plain = dim - AS_ROPE_DIM;
  const std::uint16_t* in = at<std::uint16_t>(p.o, t, h);
  std::uint16_t* out = at<std::uint16_t>(p.out, t, h);
  const std::int64_t position = *at<std::int64_t>(p.positions, t);
  AS_DEVICE_CHECK(position >= 0 && position < p.rope.table.shape[0]);
  const float* row = at<float>(p.rope.table, position);
  if constexpr (vectors) {
    for (std::int64_t d = threadIdx.x * 8; d < dim; d += blockDim.x * 8) {
      alignas(16) std::uint16_t x[8];
      *reinterpret_cast<uint4*>(x) = *reinterpret_cast<const uint4*>(in + d);
#pragma unroll
      for (int i = 0; i < 8; i += 2) {
        if (d >= plain) turn_back(row, static_cast<int>(d + i - plain) / 2, x + i);
      }
      *reinterpret_cast<uint4*>(out + d) = *reinterpret_cast<const uint4*>(x);
    }
  } else {
    for (std::int64_t d = threadIdx.x; d < plain; d += blockDim.x) out[d] = in[d];
    for (int pair = static_cast<int>(threadIdx.x); pair < AS_ROPE_DIM / 2;
         pair += static_cast<int>(blockDim.x)) {
      std::uint16_t x[2] = {in[plain + 2 * pair], in[plain + 2 * pair + 1]};
      turn_back(row, pair, x);
      out[plain + 2 * pair] = x[0];
      out[plain + 2 * pair + 1] = x[1];
    }
  }
}

// With codes: a warp a block of 128 dims, four of them a thread.
constexpr int kWarps = 4;

__device__ void keep_row(const as_tensor& to, std::int64_t t, std::int64_t h, std::int64_t first,
                         const std::uint16_t* bits) {
  if (to.data == nullptr) return;
  std::uint16_t* out = at<std::uint16_t>(to, t, h) + first;
#pragma unroll
  for (int i = 0; i < 4; ++i) out[i] = bits[i];
}

__global__ void __launch_bounds__(32 * kWarps) inverse_rope_codes_kernel(as_inverse_rope_params p) {
  follow_kernel_before();
  const as_tensor& from = p.rows_given != 0 ? p.row : p.o;
  const std::int64_t dim = from.shape[2], blocks = dim / AS_PROJECTION_BLOCK;
  const std::int64_t heads = from.shape[1];
  const std::int64_t item = std::int64_t{blockIdx.x} * kWarps + threadIdx.y;
  if (item >= from.shape[0] * heads * blocks) return;
  const std::int64_t block = item % blocks, h = item / blocks % heads, t = item / blocks / heads;
  const std::int64_t first = block * AS_PROJECTION_BLOCK + 4 * threadIdx.x;
  const std::uint16_t* in = at<std::uint16_t>(from, t, h) + first;
  std::uint16_t bits[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) bits[i] = in[i];
  if (p.rows_given == 0) {
    const std::int64_t turned = first - (dim - AS_ROPE_DIM);
    if (turned >= 0) {
      const std::int64_t position = *at<std::int64_t>(p.positions, t);
      AS_DEVICE_CHECK(position >= 0 && position < p.rope.table.shape[0]);
      const float* row = at<float>(p.rope.table, position);
      turn_back(row, static_cast<int>(turned) / 2, bits);
      turn_back(row, static_cast<int>(turned) / 2 + 1, bits + 2);
    }
    keep_row(p.out, t, h, first, bits);
    keep_row(p.row, t, h, first, bits);
  }
  float x[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = bf16_to_float(bits[i]);
  const int exponent = quantise_index_fp8(
      x, at<unsigned char>(p.codes, t, h, block * AS_PROJECTION_BLOCK), p.scale_floor);
  if (threadIdx.x == 0) *at<float>(p.scales, t, h, block) = exp2_int(exponent);
}

int turn_and_quantise(const as_inverse_rope_params& p, const Launch& launch) {
  const std::int64_t items = as_tensor_numel(&p.scales);
  if (items == 0) return 0;
  const dim3 grid(static_cast<unsigned>((items + kWarps - 1) / kWarps));
  return launch_early(launch.gpu.hopper, launch.stream, grid, dim3(32, kWarps), 0,
                      inverse_rope_codes_kernel, p);
}

bool aligned(const as_tensor& t) {
  return reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0 &&
         (t.stride[0] | t.stride[1] | t.shape[2]) % 8 == 0;
}

}  // namespace

int inverse_rope(const as_inverse_rope_params& p, const Launch& launch) {
  if (p.codes.data != nullptr) return turn_and_quantise(p, launch);
  if (p.o.shape[0] == 0 || p.o.shape[1] == 0) return 0;
  constexpr unsigned kHeads = 4;  // of a block
  const dim3 grid(static_cast<unsigned>(p.o.shape[0]),
                  (static_cast<unsigned>(p.o.shape[1]) + kHeads - 1) / kHeads);
  const dim3 block(64, kHeads);
  const auto kernel =
      aligned(p.o) && aligned(p.out) ? inverse_rope_kernel<true> : inverse_rope_kernel<false>;
  return launch_early(launch.gpu.hopper, launch.stream, grid, block, 0, kernel, p);
}

}  // namespace attnscope::cuda
