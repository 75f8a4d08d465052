// Tensor core steps that every GPU from sm_80 on has: bf16 or fp16 16x8x16 with fp32 sums, and the
// shared memory loads that feed them.
//
// Shared tiles are rows of 16-byte chunks; chunk c of row r lies at c ^ (r % 8), so that eight rows
// of one column of chunks meet all banks.
#pragma once

#include <cstdint>

#include "kernels/cuda/view.cuh"

namespace attnscope::cuda {

__device__ __forceinline__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

// Byte offset of a chunk in a tile whose rows have row_chunks chunks (a multiple of 8).
template <int row_chunks>
__device__ __forceinline__ std::uint32_t chunk_offset(int row, int chunk) {
  return static_cast<std::uint32_t>((row * row_chunks + (chunk ^ (row & 7))) * 16);
}

struct Matrix4 {
  std::uint32_t r[4];
};

// Four 8x8 matrices of bf16; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ Matrix4 load_matrix4(std::uint32_t address) {
  Matrix4 m;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m.r[0]), "=r"(m.r[1]), "=r"(m.r[2]), "=r"(m.r[3])
               : "r"(address)
               : "memory");
  return m;
}
__device__ __forceinline__ Matrix4 load_matrix4_transposed(std::uint32_t address) {
  Matrix4 m;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m.r[0]), "=r"(m.r[1]), "=r"(m.r[2]), "=r"(m.r[3])
               : "r"(address)
               : "memory");
  return m;
}

// c += a * b; a: 16x16 row-major, b: 16x8 column-major, c: lane l holds rows l/4 and l/4 + 8,
// columns 2(l%4) and the next.
__device__ __forceinline__ void mma(float* c, const std::uint32_t* a, std::uint32_t b0,
                                    std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void mma_f16(float* c, const std::uint32_t (&a)[4], std::uint32_t b0,
                                        std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace attnscope::cuda
