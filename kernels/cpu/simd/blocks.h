// Blocks of bf16 numbers as e4m3 codes under scales that are powers of two, of the level being
// compiled. Included by level.cpp only.
#pragma once

#include <utility>

#include "kernels/cpu/simd/heads.h"
#include "kernels/cpu/simd/vec.h"

namespace {

// The code in the lowest byte, of numbers whose absolute value is at most 448: adding 2^20 times
// the power of two below it, or 2^14, rounds a number to three bits behind the first.
AS_INLINE U32 encode_inside(F32 x) {
  const U32 bits = as_bits(x);
  const U32 power = max_bits(bits & 0x7f800000u, splat_bits(121u << 23));
  const U32 shift = power + (20u << 23);
  const U32 steps = as_bits(as_float(bits & 0x7fffffffu) + as_float(shift)) - shift;
  return ((bits >> 24) & 0x80u) | (steps + ((power - (121u << 23)) >> 20));
}

template <bool kInside>
AS_INLINE void encode_block(const std::uint16_t* x, std::int64_t n, float factor,
                            unsigned char* codes) {
#pragma GCC unroll 4
  for (std::int64_t i = 0; i < n; i += kPair) {
    const U32 pairs = load<U32>(x + i);
    const F32 even = even_of(pairs) * factor, odd = odd_of(pairs) * factor;
    const U32 two = kInside ? encode_inside(even) | encode_inside(odd) << 8
                            : encode_e4m3_bits(even) | encode_e4m3_bits(odd) << 8;
    store(codes + i, __builtin_convertvector(two, U16));
  }
}

// 16-bit numbers as bytes.
AS_INLINE void put_bytes(unsigned char* p, Halves v) {
#if defined(__AVX512F__)
  store(p, _mm512_maskz_cvtepi16_epi8(0xffffffffu, (__m512i)v));
#else
  typedef std::uint8_t Bytes __attribute__((vector_size(kPair)));
  store(p, __builtin_convertvector(v, Bytes));
#endif
}

// The same of numbers that become normal codes, or 0, in 16 bits each: `base` is the bits of the
// scale times 2^-7, whose code would be 0, and the mantissa is rounded from seven bits to three.
AS_INLINE void encode_normal_block(const std::uint16_t* x, std::int64_t n, std::uint16_t base,
                                   unsigned char* codes) {
  const Halves least = base - Halves{};
#pragma GCC unroll 4
  for (std::int64_t i = 0; i < n; i += kPair) {
    const Halves bits = load<Halves>(x + i), magnitude = bits & 0x7fffu;
    const Halves above = (magnitude > least ? magnitude : least) - least;
    const Halves code = (above + 7u + ((above >> 4) & 1u)) >> 4;
    put_bytes(codes + i, code | ((bits >> 8) & 0x80u));
  }
}

struct Extent {
  std::uint32_t least, most;  // bits without sign; of numbers that are not 0, and of all
};

// A NaN has more bits than infinity.
AS_INLINE Extent extent_of(const std::uint16_t* x, std::int64_t n) {
  Halves most{}, most_below{};
  for (std::int64_t i = 0; i < n; i += kPair) {
    const Halves bits = load<Halves>(x + i) & 0x7fffu;
    const Halves below = 0u - bits;  // 0 stays, the least is the largest
    most = bits > most ? bits : most;
    most_below = below > most_below ? below : most_below;
  }
  const auto largest = [](Halves v) __attribute__((always_inline)) {
    return max_bits_lane(max_bits((U32)v & 0xffffu, (U32)v >> 16));
  };
  return {(0x10000u - largest(most_below)) & 0xffffu, largest(most)};
}

// Largest bits without sign of numbers that are no NaN.
AS_INLINE std::uint32_t most_bits(const std::uint16_t* x, std::int64_t n) {
  std::uint32_t most = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t bits = x[i] & 0x7fffu;
    most = bits <= 0x7f80u && bits > most ? bits : most;
  }
  return most;
}

// least is a normal number.
void quantise_blocks(const std::uint16_t* x, std::int64_t n, std::int64_t block, float least,
                     unsigned char* codes, std::int32_t* exponents) {
  constexpr std::uint32_t kInf = 0x7f800000u;
  std::uint32_t floor_bits;
  __builtin_memcpy(&floor_bits, &least, sizeof(floor_bits));
  for (; n > 0; n -= block, x += block, codes += block) {
    const Extent extent = extent_of(x, block);
    const std::uint32_t all = extent.most << 16;
    const std::uint32_t measured = all > kInf ? most_bits(x, block) << 16 : all;
    const std::uint32_t most = measured > floor_bits ? measured : floor_bits;
    // most = m 2^e exceeds 448 * 2^k = 1.75 * 2^(8 + k) exactly when m > 1.75 or e > 8 + k.
    const int exponent =
        static_cast<int>(most >> 23) - 127 - 8 + ((most & 0x7fffffu) > 0x600000u ? 1 : 0);
    *exponents++ = most == kInf ? attnscope::cpu::simd::kInfiniteExponent : exponent;
    const std::uint32_t factor_bits =
        most == kInf ? 0u : static_cast<std::uint32_t>(127 - exponent) << 23;
    float factor;
    __builtin_memcpy(&factor, &factor_bits, sizeof(factor));
    const int base = (exponent + 120) * 128;
    if (all >= kInf) {
      encode_block<false>(x, block, factor, codes);
    } else if (base >= 0 && (extent.least == 0 || static_cast<int>(extent.least) >= base + 128)) {
      encode_normal_block(x, block, static_cast<std::uint16_t>(base), codes);
    } else {
      encode_block<true>(x, block, factor, codes);
    }
  }
}

}  // namespace
