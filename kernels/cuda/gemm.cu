// The projections' matrix product for when the library is missing or declines: tiles of 64 x 64
// with tensor cores, any shape, any alignment.
#include "kernels/cuda/codec.cuh"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/mma.cuh"

namespace attnscope::cuda {
namespace {

using Bits = std::uint16_t;

constexpr int kTile = 64;
constexpr int kThreads = 128;
constexpr int kChunks = kTile / 8;  // 16-byte chunks of a row of a tile

// Rows [first, first + 64) and columns [column, column + 64) of a matrix, zeros beyond its end.
__device__ void load_tile(const Bits* matrix, std::int64_t stride, std::int64_t first,
                          std::int64_t rows, std::int64_t column, std::int64_t columns,
                          bool vectors, unsigned char* tile) {
#pragma unroll
  for (int i = 0; i < kTile * kChunks / kThreads; ++i) {
    const int id = i * kThreads + static_cast<int>(threadIdx.x);
    const int row = id / kChunks;
    const std::int64_t c = column + id % kChunks * 8;
    uint4 bits = make_uint4(0u, 0u, 0u, 0u);
    if (first + row < rows) {
      const Bits* from = matrix + (first + row) * stride + c;
      if (vectors && c + 8 <= columns) {
        bits = *reinterpret_cast<const uint4*>(from);
      } else {
        std::uint32_t words[4] = {};
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          if (c + k < columns)
            words[k / 2] |= static_cast<std::uint32_t>(from[k]) << (16 * (k % 2));
        }
        bits = make_uint4(words[0], words[1], words[2], words[3]);
      }
    }
    *reinterpret_cast<uint4*>(tile + chunk_offset<kChunks>(row, id % kChunks)) = bits;
  }
}

__global__ void __launch_bounds__(kThreads) multiply_kernel(Product p, bool vectors) {
  __shared__ alignas(128) unsigned char x_tile[kTile * kTile * 2];
  __shared__ alignas(128) unsigned char w_tile[kTile * kTile * 2];
  const std::int64_t batch = blockIdx.z;
  const auto* x = static_cast<const Bits*>(p.x) + batch * p.x_batch;
  const auto* weight = static_cast<const Bits*>(p.weight) + batch * p.weight_batch;
  const std::int64_t first_out = std::int64_t{blockIdx.x} * kTile;
  const std::int64_t first_row = std::int64_t{blockIdx.y} * kTile;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int m = warp / 2 * 32;
  const int n = warp % 2 * 32;
  float sums[2][4][4] = {};
  for (std::int64_t k = 0; k < p.in; k += kTile) {
    __syncthreads();
    load_tile(x, p.x_stride, first_row, p.rows, k, p.in, vectors, x_tile);
    if (p.by_input) {
      load_tile(weight, p.weight_stride, k, p.in, first_out, p.out, vectors, w_tile);
    } else {
      load_tile(weight, p.weight_stride, first_out, p.out, k, p.in, vectors, w_tile);
    }
    __syncthreads();
#pragma unroll
    for (int s = 0; s < kTile / 16; ++s) {
      Matrix4 a[2], b[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        a[i] = load_matrix4(shared_address(x_tile) +
                            chunk_offset<kChunks>(m + 16 * i + lane % 16, 2 * s + lane / 16));
        // Two groups of eight outputs: r[0], r[1] of the first, r[2], r[3] of the second.
        b[i] = p.by_input
                   ? load_matrix4_transposed(
                         shared_address(w_tile) +
                         chunk_offset<kChunks>(16 * s + lane % 16, n / 8 + 2 * i + lane / 16))
                   : load_matrix4(shared_address(w_tile) +
                                  chunk_offset<kChunks>(n + 16 * i + lane / 16 * 8 + lane % 8,
                                                        2 * s + lane / 8 % 2));
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          mma(sums[i][j], a[i].r, b[j / 2].r[2 * (j % 2)], b[j / 2].r[2 * (j % 2) + 1]);
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
        if (row >= p.rows || out >= p.out) continue;
        const std::int64_t at = batch * p.y_batch + row * p.y_stride + out;
        if (p.wide) {
          static_cast<float*>(p.y)[at] = sums[i][j][e];
        } else {
          static_cast<Bits*>(p.y)[at] = float_to_bf16(sums[i][j][e]);
        }
      }
    }
  }
}

}  // namespace

int multiply(const Product& p, const Launch& launch) {
  if (p.rows == 0 || p.out == 0 || p.batches == 0) return 0;
  const auto addresses =
      reinterpret_cast<std::uintptr_t>(p.x) | reinterpret_cast<std::uintptr_t>(p.weight);
  const bool vectors =
      addresses % 16 == 0 && (p.x_stride | p.weight_stride | p.x_batch | p.weight_batch) % 8 == 0;
  const dim3 grid(static_cast<unsigned>((p.out + kTile - 1) / kTile),
                  static_cast<unsigned>((p.rows + kTile - 1) / kTile),
                  static_cast<unsigned>(p.batches));
  multiply_kernel<<<grid, kThreads, 0, static_cast<cudaStream_t>(launch.stream)>>>(p, vectors);
  return launch_status();
}

}  // namespace attnscope::cuda
