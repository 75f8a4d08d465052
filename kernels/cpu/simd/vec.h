// Vectors of the level being compiled, in GCC vector extensions. Included by level.cpp only, inside
// no namespace; everything has internal linkage so that no level's code is linked into another.
#pragma once

#include <cstdint>
#include <utility>

#if defined(__FMA__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace {

#define AS_INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif
constexpr int kHalf = kLanes / 2;

typedef float F32 __attribute__((vector_size(4 * kLanes)));
typedef std::uint32_t U32 __attribute__((vector_size(4 * kLanes)));
typedef std::int32_t I32 __attribute__((vector_size(4 * kLanes)));
typedef std::uint16_t U16 __attribute__((vector_size(2 * kLanes)));
typedef std::uint8_t U8 __attribute__((vector_size(kLanes)));
typedef std::int8_t I8 __attribute__((vector_size(kLanes)));
typedef float F32Half __attribute__((vector_size(4 * kHalf)));
typedef double F64 __attribute__((vector_size(8 * kHalf)));

template <class V>
AS_INLINE V load(const void* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof(V));
  return v;
}
template <class V>
AS_INLINE void store(void* p, V v) {
  __builtin_memcpy(p, &v, sizeof(V));
}

AS_INLINE F32 splat(float x) { return x - F32{}; }
AS_INLINE U32 splat_bits(std::uint32_t x) { return x - U32{}; }
AS_INLINE F32 as_float(U32 x) { return (F32)x; }
AS_INLINE U32 as_bits(F32 x) { return (U32)x; }

// a * b + c; one rounding where the level has it.
AS_INLINE F32 fma(F32 a, F32 b, F32 c) {
#if defined(__AVX512F__)
  return (F32)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
  return (F32)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
  return a * b + c;
#endif
}

AS_INLINE F32 select(I32 mask, F32 yes, F32 no) {
  return as_float(((U32)mask & as_bits(yes)) | (~(U32)mask & as_bits(no)));
}
// The larger one; a where b is NaN.
AS_INLINE F32 max(F32 a, F32 b) { return b > a ? b : a; }

// Sum of the lanes, pairwise.
AS_INLINE float sum(F32 v) {
  float lanes[kLanes];
  store(lanes, v);
#pragma GCC unroll 4
  for (int step = kHalf; step > 0; step /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < step; ++i) lanes[i] += lanes[i + step];
  }
  return lanes[0];
}
// Sums of the lanes of four vectors, each in the order of sum().
AS_INLINE void sum_four(const F32* v, float* to) {
#if defined(__AVX512F__)
  const auto halves = [](F32 a, F32 b) __attribute__((always_inline)) {
    const auto low =
        __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
    const auto high =
        __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    return low + high;
  };
  const F32 a = halves(v[0], v[1]), b = halves(v[2], v[3]);
  // Four lanes of each.
  F32 all =
      __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
      __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
  all += __builtin_shufflevector(all, all, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
  all += __builtin_shufflevector(all, all, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
  const auto one_each = __builtin_shufflevector(all, all, 0, 4, 8, 12);
  __builtin_memcpy(to, &one_each, sizeof(one_each));
#elif defined(__AVX2__)
  const auto halves = [](F32 a, F32 b) __attribute__((always_inline)) {
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11) +
           __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
  };
  const F32 a = halves(v[0], v[1]), b = halves(v[2], v[3]);
  const F32 two = __builtin_shufflevector(a, b, 0, 1, 4, 5, 8, 9, 12, 13) +
                  __builtin_shufflevector(a, b, 2, 3, 6, 7, 10, 11, 14, 15);
  const auto all =
      __builtin_shufflevector(two, two, 0, 2, 4, 6) + __builtin_shufflevector(two, two, 1, 3, 5, 7);
  __builtin_memcpy(to, &all, sizeof(all));
#else
  for (int i = 0; i < 4; ++i) to[i] = sum(v[i]);
#endif
}

// One step of a transposition: of each two vectors `Step` apart, lanes whose place has that bit
// change sides.
template <int Step, int... Lanes>
AS_INLINE void exchange(U32& a, U32& b, std::integer_sequence<int, Lanes...>) {
  const U32 first =
      __builtin_shufflevector(a, b, ((Lanes & Step) != 0 ? kLanes + Lanes - Step : Lanes)...);
  b = __builtin_shufflevector(a, b, ((Lanes & Step) != 0 ? kLanes + Lanes : Lanes + Step)...);
  a = first;
}
// Lane i of vector j becomes lane j of vector i.
template <int Step = 1>
AS_INLINE void transpose(U32 (&v)[kLanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if ((i & Step) != 0) continue;
    exchange<Step>(v[i], v[i + Step], std::make_integer_sequence<int, kLanes>{});
  }
  if constexpr (2 * Step < kLanes) transpose<2 * Step>(v);
}

// Lanes `Step` apart change places.
template <int Step, class V, int... Lanes>
AS_INLINE V swapped(V v, std::integer_sequence<int, Lanes...>) {
  return __builtin_shufflevector(v, v, (Lanes ^ Step)...);
}
template <int Step = kHalf>
AS_INLINE float max_lane(F32 v) {
  v = max(v, swapped<Step>(v, std::make_integer_sequence<int, kLanes>{}));
  if constexpr (Step > 1) return max_lane<Step / 2>(v);
  return v[0];
}
AS_INLINE U32 max_bits(U32 a, U32 b) { return b > a ? b : a; }
template <int Step = kHalf>
AS_INLINE std::uint32_t max_bits_lane(U32 v) {
  v = max_bits(v, swapped<Step>(v, std::make_integer_sequence<int, kLanes>{}));
  if constexpr (Step > 1) return max_bits_lane<Step / 2>(v);
  return v[0];
}

// The first n < kLanes values, zeros after.
template <class V, class T>
AS_INLINE V load_part(const T* p, std::int64_t n) {
  V v{};
  __builtin_memcpy(&v, p, static_cast<unsigned long>(n) * sizeof(T));
  return v;
}
template <class V, class T>
AS_INLINE void store_part(T* p, V v, std::int64_t n) {
  __builtin_memcpy(p, &v, static_cast<unsigned long>(n) * sizeof(T));
}

AS_INLINE F32 widen_bf16(U16 x) { return as_float(__builtin_convertvector(x, U32) << 16); }

// The exponent's bias is 112 less; the product is exact, subnormals too.
AS_INLINE F32 widen_f16(U16 x) {
  const U32 code = __builtin_convertvector(x, U32);
  const U32 magnitude = code & 0x7fffu;
  const U32 finite = as_bits(as_float(magnitude << 13) * 0x1p112f);
  const U32 special = (magnitude << 13) | 0x7f800000u;
  const U32 is_special = (U32)(magnitude >= 0x7c00u);
  return as_float((is_special & special) | (~is_special & finite) | ((code & 0x8000u) << 16));
}

AS_INLINE U16 narrow_bf16(F32 x) {
  const U32 bits = as_bits(x);
  const U32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const U32 quiet = (bits >> 16) | 0x40u;
  const U32 is_nan = (U32)((bits & 0x7fffffffu) > 0x7f800000u);
  return __builtin_convertvector((is_nan & quiet) | (~is_nan & rounded), U16);
}

// exp to 2 ulp: 2^n * e^r with |r| <= ln 2 / 2, e^r by its Taylor series. exp(-inf) = 0, NaN stays.
AS_INLINE F32 exp(F32 x) {
  x = x < splat(-104.0f) ? splat(-104.0f) : x;
  x = x > splat(89.0f) ? splat(89.0f) : x;
  const F32 shift = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const F32 n = fma(x, splat(1.44269504f), shift) - shift;
  F32 r = fma(n, splat(-0.693359375f), x);  // ln 2 in two parts
  r = fma(n, splat(2.12194440e-4f), r);
  F32 p = splat(1.0f / 5040);
  p = fma(p, r, splat(1.0f / 720));
  p = fma(p, r, splat(1.0f / 120));
  p = fma(p, r, splat(1.0f / 24));
  p = fma(p, r, splat(1.0f / 6));
  p = fma(p, r, splat(0.5f));
  p = fma(p * r, r, r) + 1.0f;
  // Two factors, so that denormal results come out right.
  const I32 whole = __builtin_convertvector(n, I32);
  const I32 first = whole >> 1;
  const I32 second = whole - first;
  return p * as_float((U32)(first + 127) << 23) * as_float((U32)(second + 127) << 23);
}

// tanh to some 2^-22 of itself: its series where |x| < 1/4, 1 - 2 / (e^2x + 1) elsewhere.
AS_INLINE F32 tanh(F32 x) {
  const F32 square = x * x;
  F32 p = splat(62.0f / 2835);
  p = fma(p, square, splat(-17.0f / 315));
  p = fma(p, square, splat(2.0f / 15));
  p = fma(p, square, splat(-1.0f / 3));
  const F32 small = fma(p * square, x, x);
  const F32 large = 1.0f - 2.0f / (exp(x + x) + 1.0f);
  return select((square < splat(0.0625f)), small, large);
}

// Of codes with nothing above them.
AS_INLINE F32 decode_e4m3(U32 code) {
  const U32 magnitude = code & 0x7fu;
  const U32 normal = (magnitude << 20) + (120u << 23);
  const U32 small = as_bits(__builtin_convertvector((I32)magnitude, F32) * 0x1p-9f);
  const U32 is_small = (U32)(magnitude < 8u);
  const U32 is_nan = (U32)(magnitude == 0x7fu);
  const U32 value = (is_small & small) | (~is_small & normal) | (is_nan & 0x7fc00000u);
  return as_float(value | ((code & 0x80u) << 24));
}
AS_INLINE F32 decode_e4m3(U8 codes) { return decode_e4m3(__builtin_convertvector(codes, U32)); }

// In the lowest byte.
AS_INLINE U32 encode_e4m3_bits(F32 x) {
  const U32 bits = as_bits(x);
  const U32 sign = (bits >> 24) & 0x80u;
  const U32 magnitude = bits & 0x7fffffffu;
  const U32 normal = (magnitude + 0x7ffffu + ((magnitude >> 20) & 1u) - (120u << 23)) >> 20;
  // Adding 2^14 leaves the multiple of 2^-9 nearest to |x| in the low bits.
  const U32 small = as_bits(as_float(magnitude) + 16384.0f) - 0x46800000u;
  const U32 is_small = (U32)(magnitude < 0x3c800000u);   // 2^-6
  const U32 is_large = (U32)(magnitude >= 0x43e00000u);  // 448
  const U32 is_nan = (U32)(magnitude > 0x7f800000u);
  U32 code = (is_small & small) | (~is_small & normal);
  code = sign | (is_large & 0x7eu) | (~is_large & code);
  return (is_nan & 0x7fu) | (~is_nan & code);  // without sign
}
AS_INLINE U8 encode_e4m3(F32 x) { return __builtin_convertvector(encode_e4m3_bits(x), U8); }

// The upper byte of an fp16.
AS_INLINE F32 decode_e5m2(U8 codes) { return widen_f16(__builtin_convertvector(codes, U16) << 8); }

AS_INLINE U8 encode_e5m2(F32 x) {
  const U32 bits = as_bits(x);
  const U32 sign = (bits >> 24) & 0x80u;
  const U32 magnitude = bits & 0x7fffffffu;
  const U32 normal = (magnitude + 0xfffffu + ((magnitude >> 21) & 1u) - (112u << 23)) >> 21;
  // Adding 2^7 leaves the multiple of 2^-16 nearest to |x| in the low bits.
  const U32 small = as_bits(as_float(magnitude) + 128.0f) - 0x43000000u;
  const U32 is_small = (U32)(magnitude < 0x38800000u);   // 2^-14
  const U32 is_large = (U32)(magnitude >= 0x47600000u);  // 57344
  const U32 is_nan = (U32)(magnitude > 0x7f800000u);
  U32 code = (is_small & small) | (~is_small & normal);
  code = sign | (is_large & 0x7bu) | (~is_large & code);
  code = (is_nan & 0x7fu) | (~is_nan & code);  // without sign
  return __builtin_convertvector(code, U8);
}

}  // namespace
