// Hopper's warpgroup matrix steps: bf16, fp16 or e4m3 in, fp32 sums in registers, operands in
// shared memory or, on the left, in registers. sm_90a alone.
//
// Shared tiles are panels of 64 columns: rows of 128 bytes, chunk c of row r at c ^ (r % 8); one
// panel follows another. Read by rows such a tile is K-major, read by columns MN-major.
#pragma once

#include <cstdint>

#include "kernels/cuda/mma.cuh"

namespace attnscope::cuda::hopper {

// Byte offset of a 16-byte chunk in a tile of `rows` rows.
template <int rows>
__device__ __forceinline__ std::uint32_t panel_offset(int row, int chunk) {
  return static_cast<std::uint32_t>((chunk / 8) * rows * 128 + row * 128 +
                                    ((chunk % 8) ^ (row & 7)) * 16);
}

// A descriptor of a 128-byte swizzled tile at a shared address. Eight rows are 1024 bytes;
// `panel_bytes` from one panel to the next, where a step spans several (MN-major); `group_bytes`
// from one eight rows to the next.
__device__ __forceinline__ std::uint64_t descriptor(std::uint32_t address,
                                                    std::uint32_t panel_bytes,
                                                    std::uint32_t group_bytes = 1024) {
  return static_cast<std::uint64_t>((address & 0x3ffffu) >> 4) |
         static_cast<std::uint64_t>(panel_bytes >> 4) << 16 |
         static_cast<std::uint64_t>(group_bytes >> 4) << 32 | std::uint64_t{1} << 62;
}

// The same, of an address that is made equal in all lanes where the compiler sees it, so that
// descriptors stay in uniform registers.
__device__ __forceinline__ std::uint64_t uniform_descriptor(std::uint32_t address,
                                                            std::uint32_t panel_bytes,
                                                            std::uint32_t group_bytes = 1024) {
  return descriptor(__shfl_sync(0xffffffffu, address, 0), panel_bytes, group_bytes);
}
// The descriptor of what lies so many bytes further on. Addresses never carry into the upper half.
__device__ __forceinline__ std::uint64_t further(std::uint64_t descriptor, int bytes) {
  const auto low = static_cast<std::uint32_t>(descriptor) + static_cast<std::uint32_t>(bytes / 16);
  return (descriptor >> 32 << 32) | low;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Around steps: registers and shared memory are as the code before left them; a batch ends; all
// batches but the last few are done.
__device__ __forceinline__ void begin_steps() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void end_steps() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int left = 0>
__device__ __forceinline__ void wait_steps() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
}

// The sums of a step, d[0] and on, as operands and in the text of the instruction.
#define AS_PLACES_32                                       \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define AS_PLACES_64                                                  \
  AS_PLACES_32                                                        \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define AS_SUMS_32                                                                                \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
      "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),    \
      "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),  \
      "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),  \
      "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define AS_SUMS_64                                                                               \
  AS_SUMS_32, "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]),      \
      "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), \
      "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), \
      "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), \
      "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])

// d (+)= a * b^T: 64 rows and 64 columns, 16 deep, both K-major.
#define AS_STEP_64X64(type)                                                         \
  asm volatile(                                                                     \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"                                  \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" AS_PLACES_32 \
      "}, %32, %33, p, 1, 1, 0, 0;\n}\n"                                            \
      : AS_SUMS_32                                                                  \
      : "l"(a), "l"(b), "r"(add ? 1 : 0))
template <bool bf16>
__device__ __forceinline__ void step_64x64(float (&d)[32], std::uint64_t a, std::uint64_t b,
                                           bool add) {
  if constexpr (bf16) {
    AS_STEP_64X64("bf16");
  } else {
    AS_STEP_64X64("f16");
  }
}
#undef AS_STEP_64X64

// The same of e4m3, 32 deep. Of a sum of products some 14 bits below its largest are kept.
__device__ __forceinline__ void step_64x64_codes(float (&d)[32], std::uint64_t a, std::uint64_t b,
                                                 bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {" AS_PLACES_32
      "}, %32, %33, p, 1, 1;\n}\n"
      : AS_SUMS_32
      : "l"(a), "l"(b), "r"(add ? 1 : 0));
}

// d (+)= a * b^T: 64 rows and 64 columns, 16 deep; a in registers as mma wants it, b K-major.
#define AS_STEP_64X64_REGISTERS(type)                                               \
  asm volatile(                                                                     \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"                                  \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" AS_PLACES_32 \
      "}, {%32,%33,%34,%35}, %36, p, 1, 1, 0;\n}\n"                                 \
      : AS_SUMS_32                                                                  \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add ? 1 : 0))
template <bool bf16>
__device__ __forceinline__ void step_64x64(float (&d)[32], const std::uint32_t* a, std::uint64_t b,
                                           bool add) {
  if constexpr (bf16) {
    AS_STEP_64X64_REGISTERS("bf16");
  } else {
    AS_STEP_64X64_REGISTERS("f16");
  }
}
#undef AS_STEP_64X64_REGISTERS

// d += a * b: 64 rows and 64 columns, 16 deep, b MN-major; a in registers as mma wants it.
#define AS_STEP_64X64_COLUMNS(type)                                                 \
  asm volatile(                                                                     \
      "{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"                                    \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" AS_PLACES_32 \
      "}, {%32,%33,%34,%35}, %36, p, 1, 1, 1;\n}\n"                                 \
      : AS_SUMS_32                                                                  \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
template <bool bf16>
__device__ __forceinline__ void step_64x64_columns(float (&d)[32], const std::uint32_t* a,
                                                   std::uint64_t b) {
  if constexpr (bf16) {
    AS_STEP_64X64_COLUMNS("bf16");
  } else {
    AS_STEP_64X64_COLUMNS("f16");
  }
}
#undef AS_STEP_64X64_COLUMNS

// d += a * b: 64 rows and 128 columns, 16 deep, b MN-major; a in registers as mma wants it, or
// K-major in shared memory.
#define AS_STEP_64X128_REGISTERS(type)                                               \
  asm volatile(                                                                      \
      "{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"                                     \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" AS_PLACES_64 \
      "}, {%64,%65,%66,%67}, %68, p, 1, 1, 1;\n}\n"                                  \
      : AS_SUMS_64                                                                   \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
template <bool bf16>
__device__ __forceinline__ void step_64x128(float* d, const std::uint32_t* a, std::uint64_t b) {
  if constexpr (bf16) {
    AS_STEP_64X128_REGISTERS("bf16");
  } else {
    AS_STEP_64X128_REGISTERS("f16");
  }
}
#undef AS_STEP_64X128_REGISTERS
#define AS_STEP_64X128(type)                                                         \
  asm volatile(                                                                      \
      "{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"                                     \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" AS_PLACES_64 \
      "}, %64, %65, p, 1, 1, 0, 1;\n}\n"                                             \
      : AS_SUMS_64                                                                   \
      : "l"(a), "l"(b))
template <bool bf16>
__device__ __forceinline__ void step_64x128(float* d, std::uint64_t a, std::uint64_t b) {
  if constexpr (bf16) {
    AS_STEP_64X128("bf16");
  } else {
    AS_STEP_64X128("f16");
  }
}
#undef AS_STEP_64X128

// d (+)= a * b^T: 64 rows and 128 columns, 16 deep, both K-major.
#define AS_STEP_64X128_ROWS(type)                                                    \
  asm volatile(                                                                      \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                   \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" AS_PLACES_64 \
      "}, %64, %65, p, 1, 1, 0, 0;\n}\n"                                             \
      : AS_SUMS_64                                                                   \
      : "l"(a), "l"(b), "r"(add ? 1 : 0))
template <bool bf16>
__device__ __forceinline__ void step_64x128_rows(float* d, std::uint64_t a, std::uint64_t b,
                                                 bool add) {
  if constexpr (bf16) {
    AS_STEP_64X128_ROWS("bf16");
  } else {
    AS_STEP_64X128_ROWS("f16");
  }
}
#undef AS_STEP_64X128_ROWS

#undef AS_SUMS_64
#undef AS_SUMS_32
#undef AS_PLACES_64
#undef AS_PLACES_32

#endif

// Ordinary stores to shared memory before this are seen by matrix steps after the next barrier.
__device__ __forceinline__ void publish_shared() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// A barrier in shared memory, of a number of threads: each comes once a phase without waiting, and
// who waits names the phase by its parity. What a thread wrote before it came is seen by who
// waited.
struct Barrier {
  std::uint64_t state;

  // By one thread, before anybody comes.
  __device__ __forceinline__ void init(int threads) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(threads)
                 : "memory");
  }
  __device__ __forceinline__ void come() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
  }
  // The same for one thread that has started copies of so many bytes, which have to come, too.
  __device__ __forceinline__ void come_and_expect(std::uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()),
                 "r"(bytes)
                 : "memory");
  }
  // Until the phase of this parity, 0 or 1, has ended.
  __device__ __forceinline__ void wait(int parity) {
    asm volatile(
        "{\n.reg .pred p;\nagain:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
        "@p bra done;\nbra again;\ndone:\n}\n" ::"r"(address()),
        "r"(parity)
        : "memory");
  }

  __device__ __forceinline__ std::uint32_t address() {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(this));
  }
};

// True in one of a warp's lanes, all of which ask. The compiler knows that it is one, and makes no
// loop over lanes of what a lane has to do alone.
__device__ __forceinline__ bool elected() {
  std::uint32_t yes;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(yes));
  return yes != 0u;
}

// Named barriers: wait for `threads` to have come, or come without waiting.
__device__ __forceinline__ void barrier_wait(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace attnscope::cuda::hopper
