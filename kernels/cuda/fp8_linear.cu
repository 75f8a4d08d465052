// fp8_linear, and groups of it at once: a projection of e4m3 codes with a scale for each block of
// 128 inputs. Codes become bf16 exactly and meet in tensor cores; the sum of a block is scaled in
// fp32 before it joins the others, so that scales may be any numbers.
#include "kernels/cuda/codec.cuh"
#include "kernels/cuda/linear_fp8.h"
#include "kernels/cuda/mma.cuh"

namespace attnscope::cuda {
namespace {

constexpr int kTile = 64;
constexpr int kBlock = 128;  // inputs that share a scale
constexpr int kThreads = 128;
constexpr int kChunks = kBlock * 2 / 16;  // of a decoded row

// Codes of rows [first, first + 64) and 128 columns as bf16, zeros beyond the last row.
__device__ void load_tile(const as_tensor& codes, std::int64_t first, std::int64_t column,
                          bool vectors, unsigned char* tile) {
#pragma unroll
  for (int i = 0; i < kTile * kBlock / 16 / kThreads; ++i) {
    const int id = i * kThreads + static_cast<int>(threadIdx.x);
    const int row = id / (kBlock / 16), c = id % (kBlock / 16);
    std::uint32_t words[4] = {};
    if (first + row < codes.shape[0]) {
      const unsigned char* from = at<unsigned char>(codes, first + row) + column + 16 * c;
      if (vectors) {
        const uint4 bits = *reinterpret_cast<const uint4*>(from);
        words[0] = bits.x, words[1] = bits.y, words[2] = bits.z, words[3] = bits.w;
      } else {
#pragma unroll
        for (int k = 0; k < 16; ++k) words[k / 4] |= std::uint32_t{from[k]} << (8 * (k % 4));
      }
    }
    uint4 low, high;
    decode_e4m3x4(words[0], 127u, &low.x, &low.y);
    decode_e4m3x4(words[1], 127u, &low.z, &low.w);
    decode_e4m3x4(words[2], 127u, &high.x, &high.y);
    decode_e4m3x4(words[3], 127u, &high.z, &high.w);
    *reinterpret_cast<uint4*>(tile + chunk_offset<kChunks>(row, 2 * c)) = low;
    *reinterpret_cast<uint4*>(tile + chunk_offset<kChunks>(row, 2 * c + 1)) = high;
  }
}

__device__ __forceinline__ void go_to(as_tensor& t, std::int64_t elements) {
  const std::int64_t size = t.dtype == AS_U8 ? 1 : t.dtype == AS_BF16 ? 2 : 4;
  t.data = static_cast<unsigned char*>(t.data) + elements * size;
}

__global__ void __launch_bounds__(kThreads)
    fp8_linear_kernel(as_fp8_linear_params p, Fp8Groups groups, bool x_vectors,
                      bool weight_vectors) {
  const std::int64_t group = blockIdx.z;
  go_to(p.x, group * groups.x);
  go_to(p.x_scale, group * groups.x_scale);
  go_to(p.weight, group * groups.weight);
  go_to(p.weight_scale, group * groups.weight_scale);
  go_to(p.y, group * groups.y);
  __shared__ alignas(128) unsigned char x_tile[kTile * kBlock * 2];
  __shared__ alignas(128) unsigned char w_tile[kTile * kBlock * 2];
  const std::int64_t first_out = std::int64_t{blockIdx.x} * kTile;
  const std::int64_t first_row = std::int64_t{blockIdx.y} * kTile;
  const std::int64_t rows = p.x.shape[0], outs = p.weight.shape[0];
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int m = warp / 2 * 32, n = warp % 2 * 32;
  float sums[2][4][4] = {};
  for (std::int64_t b = 0; b < p.x_scale.shape[1]; ++b) {
    __syncthreads();
    load_tile(p.x, first_row, b * kBlock, x_vectors, x_tile);
    load_tile(p.weight, first_out, b * kBlock, weight_vectors, w_tile);
    __syncthreads();
    float part[2][4][4] = {};
#pragma unroll
    for (int s = 0; s < kBlock / 16; ++s) {
      Matrix4 a[2], w[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        a[i] = load_matrix4(shared_address(x_tile) +
                            chunk_offset<kChunks>(m + 16 * i + lane % 16, 2 * s + lane / 16));
        w[i] = load_matrix4(
            shared_address(w_tile) +
            chunk_offset<kChunks>(n + 16 * i + lane / 16 * 8 + lane % 8, 2 * s + lane / 8 % 2));
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          mma(part[i][j], a[i].r, w[j / 2].r[2 * (j % 2)], w[j / 2].r[2 * (j % 2) + 1]);
        }
      }
    }
    // The 64 outputs of a tile lie in one block of the weight's scales.
    const float weight_scale = *at<float>(p.weight_scale, first_out / kBlock, b);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::int64_t row = first_row + m + 16 * i + lane / 4 + 8 * half;
        const float scale = row < rows ? *at<float>(p.x_scale, row, b) * weight_scale : 0.0f;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          sums[i][j][2 * half] += part[i][j][2 * half] * scale;
          sums[i][j][2 * half + 1] += part[i][j][2 * half + 1] * scale;
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const std::int64_t row = first_row + m + 16 * i + lane / 4 + e / 2 * 8;
        const std::int64_t out = first_out + n + 8 * j + 2 * (lane % 4) + e % 2;
        if (row >= rows || out >= outs) continue;
        if (p.y.dtype == AS_F32) {
          *at<float>(p.y, row, out) = sums[i][j][e];
        } else {
          *at<std::uint16_t>(p.y, row, out) = float_to_bf16(sums[i][j][e]);
        }
      }
    }
  }
}

bool in_chunks(const as_tensor& t, std::int64_t group) {
  return (reinterpret_cast<std::uintptr_t>(t.data) | static_cast<std::uintptr_t>(t.stride[0]) |
          static_cast<std::uintptr_t>(group)) %
             16 ==
         0;
}

}  // namespace

int fp8_linear_groups(const as_fp8_linear_params& first, const Fp8Groups& groups,
                      const Launch& launch) {
  if (first.x.shape[0] == 0 || first.weight.shape[0] == 0 || groups.count == 0) return 0;
  const dim3 grid(static_cast<unsigned>((first.weight.shape[0] + kTile - 1) / kTile),
                  static_cast<unsigned>((first.x.shape[0] + kTile - 1) / kTile),
                  static_cast<unsigned>(groups.count));
  fp8_linear_kernel<<<grid, kThreads, 0, static_cast<cudaStream_t>(launch.stream)>>>(
      first, groups, in_chunks(first.x, groups.x), in_chunks(first.weight, groups.weight));
  return launch_status();
}

int fp8_linear(const as_fp8_linear_params& p, const Launch& launch) {
  return fp8_linear_groups(p, {}, launch);
}

}  // namespace attnscope::cuda
