// Loops over heads of queries and of outputs, of the level being compiled: numbers stay in pairs of
// bf16, the even one in the lower half of a lane, so that none has to be moved. Included by
// level.cpp only.
#pragma once

#include "kernels/cpu/simd/codes.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/cpu/simd/vec.h"

namespace {

using attnscope::cpu::simd::Turn;

constexpr int kTurned = 64;  // the last numbers of a head

AS_INLINE F32 even_of(U32 pairs) { return as_float(pairs << 16); }
AS_INLINE F32 odd_of(U32 pairs) { return as_float(pairs & 0xffff0000u); }

// The nearest bf16 in the upper half, rounding garbage below it; of numbers that are no NaN.
AS_INLINE U32 round_number(F32 x) {
  const U32 bits = as_bits(x);
  return bits + 0x7fffu + ((bits >> 16) & 1u);
}
// The same of anything.
AS_INLINE U32 round_any(F32 x) {
  const U32 bits = as_bits(x);
  const U32 is_nan = (U32)((bits & 0x7fffffffu) > 0x7f800000u);
  return (is_nan & (bits | 0x400000u)) | (~is_nan & round_number(x));
}
AS_INLINE U32 pairs_of(U32 even, U32 odd) { return (even >> 16) | (odd & 0xffff0000u); }

// A store past the caches, of a vector that lies on a multiple of its size.
AS_INLINE void stream(void* p, U32 v) {
#if defined(__AVX512F__)
  _mm512_stream_si512(static_cast<__m512i*>(p), (__m512i)v);
#elif defined(__AVX2__)
  _mm256_stream_si256(static_cast<__m256i*>(p), (__m256i)v);
#else
  store(p, v);
#endif
}
void end_stream() {
#if defined(__AVX2__)
  _mm_sfence();
#endif
}
template <bool kStream>
AS_INLINE void put_pairs(std::uint16_t* y, U32 v) {
  kStream ? stream(y, v) : store(y, v);
}

AS_INLINE void add_squares(U32 pairs, F32& even_total, F32& odd_total) {
  const F32 even = even_of(pairs), odd = odd_of(pairs);
  even_total = fma(even, even, even_total);
  odd_total = fma(odd, odd, odd_total);
}

// Each in an order of its own: by four sums, then their lanes pairwise.
void sum_squares_rows(const std::uint16_t* x, std::int64_t stride, std::int64_t rows,
                      std::int64_t n, float* sums) {
  F32 totals[4];
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::uint16_t* const row = x + r * stride;
    F32 first[2] = {}, second[2] = {};
    std::int64_t i = 0;
    for (; i + 2 * kPair <= n; i += 2 * kPair) {
      add_squares(load<U32>(row + i), first[0], first[1]);
      add_squares(load<U32>(row + i + kPair), second[0], second[1]);
    }
    for (; i < n; i += kPair) {
      U32 pairs{};
      const std::int64_t part = n - i < kPair ? n - i : kPair;
      __builtin_memcpy(&pairs, row + i, static_cast<unsigned long>(part) * sizeof(*row));
      add_squares(pairs, first[0], first[1]);
    }
    totals[r % 4] = (first[0] + first[1]) + (second[0] + second[1]);
    if (r % 4 == 3) sum_four(totals, sums + r - 3);
  }
  for (std::int64_t r = rows / 4 * 4; r < rows; ++r) sums[r] = sum(totals[r % 4]);
}

constexpr int kSums = 32;  // of squares, by place modulo their number

// Lanes of an F32 that are the numbers from `first` on, every other one.
AS_INLINE void put_every_other(const F64* two, double* first) {
  for (int i = 0; i < kLanes; ++i) first[2 * i] = two[i / kHalf][i % kHalf];
}

// At every level the same sum, in float64: that of a place is that of all rows of 32.
template <bool kRounded>
double sum_squares_float64(const std::uint16_t* x, std::int64_t n) {
  constexpr int kVectors = kSums / kPair;
  F64 sums[kVectors][4] = {};
  for (std::int64_t i = 0; i < n; i += kSums) {
    U32 pairs[kVectors] = {};
    const std::int64_t part = n - i < kSums ? n - i : kSums;
    if (part == kSums) {
#pragma GCC unroll 4
      for (int k = 0; k < kVectors; ++k) pairs[k] = load<U32>(x + i + k * kPair);
    } else {
      __builtin_memcpy(pairs, x + i, static_cast<unsigned long>(part) * sizeof(*x));
    }
#pragma GCC unroll 4
    for (int k = 0; k < kVectors; ++k) {
      F32 even = even_of(pairs[k]), odd = odd_of(pairs[k]);
      even *= even, odd *= odd;
      // A NaN that came from bf16 has nothing below its upper half that could carry.
      if constexpr (kRounded) even = odd_of(round_number(even)), odd = odd_of(round_number(odd));
      F32Half halves[4];
      __builtin_memcpy(halves, &even, sizeof(even));
      __builtin_memcpy(halves + 2, &odd, sizeof(odd));
#pragma GCC unroll 4
      for (int h = 0; h < 4; ++h) sums[k][h] += __builtin_convertvector(halves[h], F64);
    }
  }
  double all[kSums];
  for (int k = 0; k < kVectors; ++k) {
    put_every_other(sums[k], all + k * kPair);
    put_every_other(sums[k] + 2, all + k * kPair + 1);
  }
  for (int step = kSums / 2; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) all[i] += all[i + step];
  }
  return all[0];
}

double sum_bf16_squares(const std::uint16_t* x, std::int64_t n, bool rounded) {
  return rounded ? sum_squares_float64<true>(x, n) : sum_squares_float64<false>(x, n);
}

// What a number of a row becomes before it is turned: multiplied, and that rounded.
enum class Scaling { kNone, kFactor, kRounded };

template <bool kFinite>
AS_INLINE U32 round_scaled(F32 x) {
  return kFinite ? round_number(x) : round_any(x);
}

// sine has the sign of the direction.
template <Scaling kScaling, bool kFinite, bool kStream>
AS_INLINE void turn_row(const std::uint16_t* x, float factor, std::int64_t plain,
                        const float* cosine, const float* sine, std::uint16_t* y) {
  const auto scaled = [&](U32 pairs) __attribute__((always_inline)) {
    if constexpr (kScaling == Scaling::kNone) return pairs;
    return pairs_of(round_scaled<kFinite>(even_of(pairs) * factor),
                    round_scaled<kFinite>(odd_of(pairs) * factor));
  };
  std::int64_t i = 0;
#pragma GCC unroll 4
  for (; i + kPair <= plain; i += kPair) {
    put_pairs<kStream>(y + i, scaled(load<U32>(x + i)));
  }
  if (i < plain) {
    const auto bytes = static_cast<unsigned long>(plain - i) * sizeof(*x);
    U32 pairs{};
    __builtin_memcpy(&pairs, x + i, bytes);
    pairs = scaled(pairs);
    __builtin_memcpy(y + i, &pairs, bytes);
  }
#pragma GCC unroll 8
  for (int pair = 0; pair < kTurned / 2; pair += kLanes) {
    U32 pairs = load<U32>(x + plain + 2 * pair);
    if constexpr (kScaling == Scaling::kRounded) pairs = scaled(pairs);
    F32 even = even_of(pairs), odd = odd_of(pairs);
    if constexpr (kScaling == Scaling::kFactor) even *= factor, odd *= factor;
    const F32 c = load<F32>(cosine + pair), s = load<F32>(sine + pair);
    put_pairs<kStream>(y + plain + 2 * pair,
                       pairs_of(round_any(even * c - odd * s), round_any(even * s + odd * c)));
  }
}

template <Scaling kScaling, bool kFinite, bool kStream>
void turn_rows(const Turn& t) {
  alignas(64) float sine[kTurned / 2];
  for (int i = 0; i < kTurned / 2; ++i) sine[i] = t.sign * t.table[kTurned / 2 + i];
  for (std::int64_t r = 0; r < t.rows; ++r) {
    const float factor = kScaling == Scaling::kNone ? 1.0f : t.factors[r];
    turn_row<kScaling, kFinite, kStream>(t.x + r * t.x_stride, factor, t.width - kTurned, t.table,
                                         sine, t.y + r * t.y_stride);
  }
}

template <Scaling kScaling, bool kFinite>
void turn_rows(const Turn& t) {
  constexpr auto kAlignment = static_cast<std::uintptr_t>(sizeof(U32));
  const bool on_vectors = reinterpret_cast<std::uintptr_t>(t.y) % kAlignment == 0 &&
                          t.y_stride % kPair == 0 && (t.width - kTurned) % kPair == 0;
  if (t.stream && on_vectors) {
    turn_rows<kScaling, kFinite, true>(t);
  } else {
    turn_rows<kScaling, kFinite, false>(t);
  }
}

template <Scaling kScaling>
void turn_rows(const Turn& t) {
  t.finite ? turn_rows<kScaling, true>(t) : turn_rows<kScaling, false>(t);
}

void turn_heads(const Turn& t) {
  if (t.factors == nullptr) {
    turn_rows<Scaling::kNone, false>(t);
  } else if (t.rounded) {
    turn_rows<Scaling::kRounded>(t);
  } else {
    turn_rows<Scaling::kFactor>(t);
  }
}

}  // namespace
