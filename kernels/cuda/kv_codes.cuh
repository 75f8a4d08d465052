// Quantised rows of K and V caches inside kernels (paged_params.h): what a head is stored as, what
// codes are read as, one by one or in pairs as f16.
#pragma once

#include <cuda_fp16.h>

#include "kernels/cpu/kv_codes.h"
#include "kernels/cuda/codec.cuh"
#include "kernels/cuda/reduce.cuh"

namespace attnscope::cuda {

constexpr float kLeastCodeScale = 0x1p-126f;

// Nearest e5m2, ties to even, saturating, infinities too; every NaN becomes 0x7f.
__device__ __forceinline__ std::uint8_t float_to_e5m2(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  const std::uint32_t sign = (bits >> 24) & 0x80u, m = bits & 0x7fffffffu;
  const float magnitude = fabsf(value);
  if (value != value) return 0x7f;
  if (magnitude >= 57344.0f) return static_cast<std::uint8_t>(sign | 0x7bu);
  std::uint32_t code;
  if (magnitude < 0x1p-14f) {
    code = static_cast<std::uint32_t>(__float2int_rn(magnitude * 65536.0f));  // steps of 2^-16
  } else {
    code = (m + 0xfffffu + ((m >> 21) & 1u)) >> 21;  // 2 fraction bits left
    code -= 112u << 2;
  }
  return static_cast<std::uint8_t>(sign | code);
}

__device__ __forceinline__ float e4m3_to_float(std::uint32_t code) {
  const std::uint32_t sign = (code & 0x80u) << 24, magnitude = code & 0x7fu;
  if (magnitude == 0x7fu) return __uint_as_float(sign | 0x7fc00000u);
  if (magnitude < 8u) {
    const float value = static_cast<float>(magnitude) * 0x1p-9f;
    return sign != 0u ? -value : value;
  }
  return __uint_as_float(sign | ((magnitude << 20) + (120u << 23)));
}

// The upper byte of an fp16.
__device__ __forceinline__ float e5m2_to_float(std::uint32_t code) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(code << 8)));
}

// A code before its scale.
__device__ __forceinline__ float code_value(std::int32_t kind, std::uint8_t code, float zero) {
  if (kind == AS_CODE_E4M3) return e4m3_to_float(code);
  if (kind == AS_CODE_E5M2) return e5m2_to_float(code);
  return static_cast<float>(static_cast<std::int8_t>(code)) - zero;
}

// Bytes of a head, and of its scale, from the base.
__device__ __forceinline__ std::int64_t codes_at(const cpu::KvCodes& c, std::int64_t slot,
                                                 std::int64_t head) {
  return slot / c.rows * c.page + slot % c.rows * c.row + head * c.head;
}
__device__ __forceinline__ std::int64_t scales_at(const cpu::KvCodes& c, std::int64_t slot,
                                                  std::int64_t head) {
  return slot / c.rows * c.page + c.scales + slot % c.rows * c.scale_row + head * c.scale_head;
}

__device__ __forceinline__ cpu::HeadScale read_scale(const cpu::KvCodes& c, std::int64_t slot,
                                                     std::int64_t head) {
  cpu::HeadScale s;
  if (c.beside != nullptr) {
    s.scale = c.beside[head * c.beside_step];
    return s;
  }
  const auto* from = reinterpret_cast<const float*>(c.base + scales_at(c, slot, head));
  s.scale = from[0];
  if (c.zero) s.zero = from[1];
  return s;
}

// By a warp: numbers of a head, and what they are divided by where their row has it.
__device__ inline cpu::HeadScale warp_scale(const cpu::KvCodes& c, const std::uint16_t* values,
                                            std::int64_t size) {
  float most = 0.0f, high = 0.0f, low = 0.0f;
  bool finite = true;
  for (std::int64_t d = threadIdx.x; d < size; d += 32) {
    const float x = bf16_to_float(values[d]);
    finite = finite && isfinite(x);
    most = fmaxf(most, fabsf(x));
    high = fmaxf(high, x);
    low = fminf(low, x);
  }
  cpu::HeadScale made;
  if (__any_sync(kAllLanes, !finite)) {
    made.scale = __uint_as_float(0x7fc00000u);
    return made;
  }
  if (c.code != AS_CODE_I8) {
    const float largest = c.code == AS_CODE_E5M2 ? 57344.0f : 448.0f;
    made.scale = fmaxf(__fdiv_rn(warp_max(most), largest), kLeastCodeScale);
    return made;
  }
  high = warp_max(high);
  low = -warp_max(-low);
  const float apart = __fsub_rn(__fdiv_rn(high, 255.0f), __fdiv_rn(low, 255.0f));
  made.scale = fmaxf(apart, kLeastCodeScale);
  made.zero = __fsub_rn(-128.0f, rintf(__fdiv_rn(low, made.scale)));
  return made;
}

// By a warp: bf16 numbers into the row of a slot.
__device__ inline void put_codes(const cpu::KvCodes& c, std::int64_t slot, std::int64_t head,
                                 const std::uint16_t* values, std::int64_t size) {
  unsigned char* to = c.base + codes_at(c, slot, head);
  cpu::HeadScale used;
  if (c.beside != nullptr) {
    used.scale = c.beside[head * c.beside_step];
  } else {
    used = warp_scale(c, values, size);
    auto* place = reinterpret_cast<float*>(c.base + scales_at(c, slot, head));
    if (threadIdx.x == 0) place[0] = used.scale;
    if (threadIdx.x == 0 && c.zero) place[1] = used.zero;
  }
  const bool none = used.scale != used.scale;
  for (std::int64_t d = threadIdx.x; d < size; d += 32) {
    const float x = __fdiv_rn(bf16_to_float(values[d]), used.scale);
    std::uint8_t code = 0;
    if (c.code == AS_CODE_E4M3) {
      code = float_to_e4m3(x);
    } else if (c.code == AS_CODE_E5M2) {
      code = float_to_e5m2(x);
    } else {
      const float whole = fminf(fmaxf(__fadd_rn(rintf(x), used.zero), -128.0f), 127.0f);
      code = static_cast<std::uint8_t>(static_cast<std::int8_t>(whole));
    }
    to[d] = none ? std::uint8_t{0} : code;
  }
}

// ---- codes as pairs of f16, which hold every one exactly, int8 less its zero point too

__device__ __forceinline__ __half2 as_half2(std::uint32_t bits) {
  __half2 value;
  *reinterpret_cast<std::uint32_t*>(&value) = bits;
  return value;
}
__device__ __forceinline__ std::uint32_t as_bits(__half2 value) {
  return *reinterpret_cast<const std::uint32_t*>(&value);
}

// What is taken off int8 codes of two zero points: they lie as bytes in the low bits of 1024.
__device__ __forceinline__ __half2 zeros_of(float low, float high) {
  return __floats2half2_rn(1024.0f + 128.0f + low, 1024.0f + 128.0f + high);
}

// The two codes in the low or the high half of a word.
template <int kind, bool high>
__device__ __forceinline__ std::uint32_t code_pair(std::uint32_t word, __half2 zeros) {
  if constexpr (kind == AS_CODE_E5M2) {  // the upper bytes of f16
    return __byte_perm(word, 0, high ? 0x3424 : 0x1404);
  } else if constexpr (kind == AS_CODE_I8) {
    const std::uint32_t biased = word ^ 0x80808080u;
    const std::uint32_t pair = __byte_perm(biased, 0x64646464u, high ? 0x4342 : 0x4140);
    return as_bits(__hsub2(as_half2(pair), zeros));
  } else {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    std::uint32_t pair;
    const auto codes = static_cast<unsigned short>(high ? word >> 16 : word);
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(codes));
    return pair;
#else
    // Seven bits a place lower are 2^-8 of their value; but for NaN.
    const std::uint32_t wide = __byte_perm(word, 0, high ? 0x3424 : 0x1404);
    const std::uint32_t moved = (wide & 0x80008000u) | ((wide & 0x7f007f00u) >> 1);
    std::uint32_t pair = as_bits(__hmul2(as_half2(moved), as_half2(0x5c005c00u)));
    if ((wide & 0x7f00u) == 0x7f00u) pair |= 0x7e00u;
    if ((wide & 0x7f000000u) == 0x7f000000u) pair |= 0x7e000000u;
    return pair;
#endif
  }
}

}  // namespace attnscope::cuda
