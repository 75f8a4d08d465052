// Keys in the order of scores, of the level being compiled. Included by level.cpp only.
#pragma once

#include "kernels/cpu/simd/rows.h"
#include "kernels/cpu/simd/vec.h"

namespace {

AS_INLINE U32 key_of(F32 score) {
  const U32 bits = as_bits(score + 0.0f);  // -0 becomes 0
  const U32 negative = (U32)((I32)bits < 0);
  const U32 is_nan = (U32)((bits & 0x7fffffffu) > 0x7f800000u);
  return ~is_nan & (bits ^ (negative | 0x80000000u));
}
AS_INLINE std::uint32_t key_of_one(float score) { return key_of(splat(score))[0]; }

void best_keys(const float* x, std::int64_t n, std::int64_t groups, std::uint32_t* best) {
  for (std::int64_t i = 0; i < groups; i += kLanes) store(best + i, key_of(load<F32>(x + i)));
  for (std::int64_t first = groups; first < n; first += groups) {
    const std::int64_t count = n - first < groups ? n - first : groups;
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      const U32 key = key_of(load<F32>(x + first + i)), old = load<U32>(best + i);
      store(best + i, key > old ? key : old);
    }
    for (; i < count; ++i) {
      const std::uint32_t key = key_of_one(x[first + i]);
      best[i] = key > best[i] ? key : best[i];
    }
  }
}

std::int64_t collect(const float* x, std::int64_t n, std::uint32_t bound, std::uint32_t* keys,
                     std::int32_t* places) {
  std::int64_t count = 0, i = 0;
#if defined(__AVX512F__)
  const __m512i least = _mm512_set1_epi32(static_cast<int>(bound));
  __m512i place = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (; i + kLanes <= n; i += kLanes) {
    const auto key = (__m512i)key_of(load<F32>(x + i));
    const __mmask16 some = _mm512_cmpge_epu32_mask(key, least);
    store(keys + count, _mm512_maskz_compress_epi32(some, key));
    store(places + count, _mm512_maskz_compress_epi32(some, place));
    count += __builtin_popcount(some);
    place = _mm512_add_epi32(place, _mm512_set1_epi32(kLanes));
  }
#endif
  for (; i < n; ++i) {
    const std::uint32_t key = key_of_one(x[i]);
    keys[count] = key;
    places[count] = static_cast<std::int32_t>(i);
    count += key >= bound ? 1 : 0;
  }
  return count;
}

}  // namespace
