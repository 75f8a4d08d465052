// Products of a few rows (the tokens of a decode step), which read each weight once and are as fast
// as memory is. y[b][t,o] = sum_i x[b][t,i] * weight[b][o,i].
//
// A block makes 16 outputs of all tokens; its warps share the inputs out among themselves and add
// up in shared memory, in a fixed order: a token's outputs do not depend on how many others there
// are. A lane loads 16 bytes of two rows of weights at a time and keeps kDepth such loads on their
// way. The 8 inputs of a load are the left operand of two tensor core products of 16 inputs: which
// input is which number in a sum does not matter as long as both operands agree, so that each lane
// takes 16 bytes of a token, too. Up to 8 tokens: with two such products for 16 the library is
// faster.
#include "kernels/cuda/early.cuh"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/mma.cuh"

namespace attnscope::cuda {
namespace {

constexpr int kTile = 16;   // outputs of a block
constexpr int kChunk = 32;  // inputs of a warp's load: 4 lanes of 8
constexpr int kGroup = 8;   // tokens of a tensor core product, and at most
constexpr int kDepth = 4;   // chunks on their way in a warp

// Weights are read once: they pass by the L1, whole lines of the L2 are fetched.
__device__ uint4 load_weights(const uint4* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

template <bool kWide>
__global__ void __launch_bounds__(512, 2) gemv_kernel(Product p) {
  extern __shared__ float parts[];  // [warps][16 outputs][8 tokens]
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const std::int64_t batch = blockIdx.y;
  const std::int64_t first = std::int64_t{blockIdx.x} * kTile;
  // This warp's chunks. What is beyond the inputs counts as zero.
  const int chunks = static_cast<int>((p.in + kChunk - 1) / kChunk);
  const int share = (chunks + warps - 1) / warps;
  const int begin = warp * share;
  const int end = min(chunks, begin + share);
  const int row = lane / 4;
  const int column = begin * kChunk + lane % 4 * 8;
  const int in = static_cast<int>(p.in);
  const int count = min(end - begin, (in - column + kChunk - 8) / kChunk);  // chunks of this lane
  const auto* weight =
      static_cast<const std::uint16_t*>(p.weight) + batch * p.weight_batch + column;
  // Rows beyond the last one read that one and are not written.
  const auto row_of = [&](int r) { return min(first + r, p.out - 1) * p.weight_stride; };
  const auto* upper = reinterpret_cast<const uint4*>(weight + row_of(row));
  const auto* lower = reinterpret_cast<const uint4*>(weight + row_of(row + 8));
  const auto* x = static_cast<const std::uint16_t*>(p.x) + batch * p.x_batch + column;
  const bool live = row < p.rows;
  const auto* token_at = reinterpret_cast<const uint4*>(x + (live ? row : 0) * p.x_stride);
  const int token_chunks = live ? count : 0;
  constexpr int kStep = kChunk / 8;  // of 16-byte pointers
  follow_kernel_before();
  uint4 a[kDepth], b[kDepth];
#pragma unroll
  for (int d = 0; d < kDepth; ++d) {
    a[d] = b[d] = uint4{};
    if (d >= count) continue;
    a[d] = load_weights(upper + d * kStep);
    b[d] = load_weights(lower + d * kStep);
  }
  float sums[4] = {};
#pragma unroll 1
  for (int i = 0; i < share; i += kDepth) {
    upper += kDepth * kStep;
    lower += kDepth * kStep;
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      uint4 token{};
      if (i + d < token_chunks) token = token_at[d * kStep];
      const std::uint32_t first_half[4] = {a[d].x, b[d].x, a[d].y, b[d].y};
      const std::uint32_t second_half[4] = {a[d].z, b[d].z, a[d].w, b[d].w};
      mma(sums, first_half, token.x, token.y);
      mma(sums, second_half, token.z, token.w);
      a[d] = b[d] = uint4{};
      if (i + d + kDepth < count) {
        a[d] = load_weights(upper + d * kStep);
        b[d] = load_weights(lower + d * kStep);
      }
    }
    token_at += kDepth * kStep;
  }
  constexpr int kPart = kTile * kGroup;
  float* part = parts + warp * kPart + row * kGroup + lane % 4 * 2;
  *reinterpret_cast<float2*>(part) = {sums[0], sums[1]};
  *reinterpret_cast<float2*>(part + 8 * kGroup) = {sums[2], sums[3]};
  __syncthreads();
  // Neighbouring threads write neighbouring outputs of a token.
  for (int i = static_cast<int>(threadIdx.x); i < kPart; i += static_cast<int>(blockDim.x)) {
    const int token = i / kTile, output = i % kTile;
    if (token >= p.rows || first + output >= p.out) continue;
    float sum = 0;
    for (int w = 0; w < warps; ++w) sum += parts[w * kPart + output * kGroup + token];
    const std::int64_t at = batch * p.y_batch + token * p.y_stride + first + output;
    if constexpr (kWide) {
      static_cast<float*>(p.y)[at] = sum;
    } else {
      static_cast<__nv_bfloat16*>(p.y)[at] = __float2bfloat16_rn(sum);
    }
  }
}

bool aligned(const void* p, std::int64_t stride, std::int64_t batch) {
  return reinterpret_cast<std::uintptr_t>(p) % 16 == 0 && stride % 8 == 0 && batch % 8 == 0;
}

}  // namespace

bool can_multiply_few(const Product& p) {
  return p.x_scale == nullptr && !p.by_input && p.rows <= kGroup && p.in >= 8 && p.in % 8 == 0 &&
         p.in < (1 << 30) && p.batches <= 65535 && aligned(p.x, p.x_stride, p.x_batch) &&
         aligned(p.weight, p.weight_stride, p.weight_batch);
}

int multiply_few(const Product& p, const Launch& launch) {
  // 8 chunks a warp where there are so many: enough on their way for memory, few sums to add.
  const std::int64_t chunks = (p.in + kChunk - 1) / kChunk;
  int warps = 4;
  while (warps < 16 && warps * 8 < chunks) warps *= 2;
  const dim3 grid(static_cast<unsigned>((p.out + kTile - 1) / kTile),
                  static_cast<unsigned>(p.batches));
  const auto shared = static_cast<std::size_t>(warps * kTile * kGroup) * sizeof(float);
  const auto kernel = p.wide ? gemv_kernel<true> : gemv_kernel<false>;
  return launch_early(launch.gpu.hopper, launch.stream, grid, static_cast<unsigned>(32 * warps),
                      shared, kernel, p);
}

}  // namespace attnscope::cuda
