// Products of a few rows (the tokens of a decode step), which read each weight once and are as fast
// as memory is. y[b][t,o] = sum_i x[b][t,i] * weight[b][o,i].
//
// A block makes 16 outputs of all tokens; its warps share the inputs out among themselves and add
// up in shared memory, in a fixed order: a token's outputs do not depend on how many others there
// are. A lane loads 16 bytes of two rows of weights at a time and keeps kDepth such loads on their
// way. The 8 inputs of a load are the left operand of two tensor core products of 16 inputs: which
// input is which number in a sum does not matter as long as both operands agree, so that each lane
// takes 16 bytes of a token, too.
#include <cstdlib>

#include "kernels/cuda/gemm.h"
#include "kernels/cuda/mma.cuh"

namespace attnscope::cuda {
namespace {

constexpr int kTile = 16;   // outputs of a block
constexpr int kChunk = 32;  // inputs of a warp's load: 4 lanes of 8
constexpr int kGroup = 8;   // tokens of a tensor core product
constexpr int kMostGroups = 2;

// Weights are read once: they pass by the L1, whole lines of the L2 are fetched.
__device__ uint4 load_weights(const uint4* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

// kDepth: chunks on their way in a warp.
// Inputs may have been written while the kernel was running already: not by the read-only path.
__device__ uint4 load_token(const uint4* from) {
  uint4 v;
  asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}

template <int kGroups, int kDepth, bool kWide>
__global__ void __launch_bounds__(512, 2) gemv_kernel(Product p) {
  extern __shared__ float parts[];  // [warps][kGroups][16 outputs][8 tokens]
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
  const uint4* tokens[kGroups];
  int token_chunks[kGroups];
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const bool live = g * kGroup + row < p.rows;
    tokens[g] = reinterpret_cast<const uint4*>(x + (live ? g * kGroup + row : 0) * p.x_stride);
    token_chunks[g] = live ? count : 0;
  }
  constexpr int kStep = kChunk / 8;  // of 16-byte pointers
  uint4 a[kDepth], b[kDepth];
#pragma unroll
  for (int d = 0; d < kDepth; ++d) {
    a[d] = b[d] = uint4{};
    if (d >= count) continue;
    a[d] = load_weights(upper + d * kStep);
    b[d] = load_weights(lower + d * kStep);
  }
  // Weights come beside the end of the kernel before this one, whose outputs may be the inputs; the
  // next kernel may begin to do the same.
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  float sums[kGroups][4] = {};
#pragma unroll 1
  for (int i = 0; i < share; i += kDepth) {
    upper += kDepth * kStep;
    lower += kDepth * kStep;
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        uint4 token{};
        if (i + d < token_chunks[g]) token = load_token(tokens[g] + d * kStep);
        const std::uint32_t first_half[4] = {a[d].x, b[d].x, a[d].y, b[d].y};
        const std::uint32_t second_half[4] = {a[d].z, b[d].z, a[d].w, b[d].w};
        mma(sums[g], first_half, token.x, token.y);
        mma(sums[g], second_half, token.z, token.w);
      }
      a[d] = b[d] = uint4{};
      if (i + d + kDepth < count) {
        a[d] = load_weights(upper + d * kStep);
        b[d] = load_weights(lower + d * kStep);
      }
    }
#pragma unroll
    for (int g = 0; g < kGroups; ++g) tokens[g] += kDepth * kStep;
  }
  constexpr int kPart = kTile * kGroup;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    float* part = parts + (warp * kGroups + g) * kPart + row * kGroup + lane % 4 * 2;
    *reinterpret_cast<float2*>(part) = {sums[g][0], sums[g][1]};
    *reinterpret_cast<float2*>(part + 8 * kGroup) = {sums[g][2], sums[g][3]};
  }
  __syncthreads();
  // Neighbouring threads write neighbouring outputs of a token.
  for (int i = static_cast<int>(threadIdx.x); i < kGroups * kPart;
       i += static_cast<int>(blockDim.x)) {
    const int token = i / kTile, output = i % kTile;
    if (token >= p.rows || first + output >= p.out) continue;
    const float* part = parts + token / kGroup * kPart + output * kGroup + token % kGroup;
    float sum = 0;
    for (int w = 0; w < warps; ++w) sum += part[w * kGroups * kPart];
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

template <int kGroups, int kDepth>
void launch_gemv(const Product& p, const Launch& launch) {
  // 8 chunks a warp where there are so many: enough on their way for memory, few sums to add.
  const std::int64_t chunks = (p.in + kChunk - 1) / kChunk;
  int warps = 4;
  while (warps < 16 && warps * 8 < chunks) warps *= 2;
  const dim3 grid(static_cast<unsigned>((p.out + kTile - 1) / kTile),
                  static_cast<unsigned>(p.batches));
  const auto shared = static_cast<std::size_t>(warps * kGroups * kTile * kGroup) * sizeof(float);
  const auto stream = static_cast<cudaStream_t>(launch.stream);
  static const bool kEarly = [] {
    const char* value = std::getenv("ATTNSCOPE_PDL");
    return value != nullptr && *value == '1';
  }();
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(32 * warps));
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = kEarly ? 1 : 0;
  const auto kernel =
      p.wide ? gemv_kernel<kGroups, kDepth, true> : gemv_kernel<kGroups, kDepth, false>;
  cudaLaunchKernelEx(&config, kernel, p);
}

}  // namespace

bool can_multiply_few(const Product& p) {
  return p.x_scale == nullptr && p.rows <= kMostGroups * kGroup && p.in >= 8 && p.in % 8 == 0 &&
         p.in < (1 << 30) && p.batches <= 65535 && aligned(p.x, p.x_stride, p.x_batch) &&
         aligned(p.weight, p.weight_stride, p.weight_batch);
}

int multiply_few(const Product& p, const Launch& launch) {
  if (p.rows <= kGroup) {
    launch_gemv<1, 4>(p, launch);
  } else {
    launch_gemv<2, 3>(p, launch);
  }
  return launch_status();
}

}  // namespace attnscope::cuda
