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

// Largest bits without sign. A NaN has more of them than infinity.
template <bool kNan>
AS_INLINE std::uint32_t most_bits(const std::uint16_t* x, std::int64_t n) {
  Halves most{};
  for (std::int64_t i = 0; i < n; i += kPair) {
    Halves bits = load<Halves>(x + i) & 0x7fffu;
    if constexpr (!kNan) bits &= (Halves)(bits <= 0x7f80u);
    most = bits > most ? bits : most;
  }
  return max_bits_lane(max_bits((U32)most & 0xffffu, (U32)most >> 16));
}

// least is a normal number.
void quantise_blocks(const std::uint16_t* x, std::int64_t n, std::int64_t block, float least,
                     unsigned char* codes, std::int32_t* exponents) {
  constexpr std::uint32_t kInf = 0x7f800000u;
  std::uint32_t floor_bits;
  __builtin_memcpy(&floor_bits, &least, sizeof(floor_bits));
  for (std::int64_t at = 0; at < n; at += block) {
    const std::uint32_t all = most_bits<true>(x + at, block) << 16;
    const std::uint32_t measured = all > kInf ? most_bits<false>(x + at, block) << 16 : all;
    const std::uint32_t most = measured > floor_bits ? measured : floor_bits;
    // most = m 2^e exceeds 448 * 2^k = 1.75 * 2^(8 + k) exactly when m > 1.75 or e > 8 + k.
    const int exponent =
        static_cast<int>(most >> 23) - 127 - 8 + ((most & 0x7fffffu) > 0x600000u ? 1 : 0);
    const std::uint32_t factor_bits =
        most == kInf ? 0u : static_cast<std::uint32_t>(127 - exponent) << 23;
    float factor;
    __builtin_memcpy(&factor, &factor_bits, sizeof(factor));
    *exponents++ = most == kInf ? attnscope::cpu::simd::kInfiniteExponent : exponent;
    if (all < kInf) {
      encode_block<true>(x + at, block, factor, codes + at);
    } else {
      encode_block<false>(x + at, block, factor, codes + at);
    }
  }
}

}  // namespace
