// Matrix products over rows of codes of the level being compiled: codes are widened in registers,
// two vectors at once, and scales are multiplied into what comes out, or into weights. Included by
// level.cpp only.
#pragma once

#include "kernels/cpu/simd/simd.h"
#include "kernels/cpu/simd/vec.h"

namespace {

using attnscope::cpu::simd::CodeRows;

constexpr int kPair = 2 * kLanes;  // codes that are widened at once

struct Pair {
  F32 first, second;
};
typedef std::uint16_t Halves __attribute__((vector_size(2 * kPair)));
typedef std::int8_t PairBytes __attribute__((vector_size(kPair)));

// Codes as 16 bits each, with their sign or with zeros above them.
AS_INLINE Halves halves_of(const unsigned char* p, bool with_sign) {
#if defined(__AVX512F__)
  const __m256i codes = load<__m256i>(p);
  return (Halves)(with_sign ? _mm512_maskz_cvtepi8_epi16(0xffffffffu, codes)
                            : _mm512_maskz_cvtepu8_epi16(0xffffffffu, codes));
#elif defined(__AVX2__)
  const __m128i codes = load<__m128i>(p);
  return (Halves)(with_sign ? _mm256_cvtepi8_epi16(codes) : _mm256_cvtepu8_epi16(codes));
#else
  typedef std::int16_t Signed __attribute__((vector_size(2 * kPair)));
  const Halves wide = (Halves) __builtin_convertvector(load<PairBytes>(p), Signed);
  return with_sign ? wide : wide & 0xffu;
#endif
}

// fp16 numbers as fp32.
AS_INLINE Pair widen_halves(Halves x) {
#if defined(__AVX512F__)
  typedef long long Quads __attribute__((vector_size(64)));
  const auto low = __builtin_shufflevector((Quads)x, (Quads)x, 0, 1, 2, 3);
  const auto high = __builtin_shufflevector((Quads)x, (Quads)x, 4, 5, 6, 7);
  return {(F32)_mm512_maskz_cvtph_ps(0xffff, (__m256i)low),
          (F32)_mm512_maskz_cvtph_ps(0xffff, (__m256i)high)};
#elif defined(__F16C__)
  return {(F32)_mm256_cvtph_ps(_mm256_castsi256_si128((__m256i)x)),
          (F32)_mm256_cvtph_ps(_mm256_extracti128_si256((__m256i)x, 1))};
#else
  U16 parts[2];
  __builtin_memcpy(parts, &x, sizeof(parts));
  return {widen_f16(parts[0]), widen_f16(parts[1])};
#endif
}

AS_INLINE F32 widen_i8(const unsigned char* p) {
#if defined(__AVX512F__)
  const __m512i codes = _mm512_maskz_cvtepi8_epi32(0xffff, load<__m128i>(p));
  return (F32)_mm512_maskz_cvtepi32_ps(0xffff, codes);
#elif defined(__AVX2__)
  return (F32)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(load<long long>(p))));
#else
  return __builtin_convertvector(__builtin_convertvector(load<I8>(p), I32), F32);
#endif
}

// kPair codes as numbers that are kTimes smaller than what they stand for.
struct E4m3 {
  static constexpr float kTimes = 256.0f;
  static constexpr bool kZero = false;
  // Exponent and mantissa of an fp16, whose bias is 8 more: subnormal codes come out exactly.
  AS_INLINE Pair widen(const unsigned char* p) {
    const Halves half = (halves_of(p, true) << 7) & 0xbf80u;
    const Halves is_nan = (Halves)((half & 0x3f80u) == 0x3f80u);
    return widen_halves(half | (is_nan & 0x7e00u));
  }
};
struct E5m2 {  // the upper byte of an fp16
  static constexpr float kTimes = 1.0f;
  static constexpr bool kZero = false;
  AS_INLINE Pair widen(const unsigned char* p) { return widen_halves(halves_of(p, false) << 8); }
};
struct Int8 {
  static constexpr float kTimes = 1.0f;
  static constexpr bool kZero = true;
  AS_INLINE Pair widen(const unsigned char* p) { return {widen_i8(p), widen_i8(p + kLanes)}; }
};

#if defined(__AVX512F__)
constexpr int kCodeOuts = 4;   // rows of codes of a tile
constexpr int kCodePairs = 2;  // of vectors of a row of codes
#else
constexpr int kCodeOuts = 2;
constexpr int kCodePairs = 1;
#endif
constexpr int kCodeQueries = 4;

AS_INLINE CodeRows rows_from(const CodeRows& w, std::int64_t j) {
  return {w.codes + j, w.scale + j, w.zero + j};
}

template <class Code, int Rows, int Outs>
AS_INLINE void code_step(const float* const* x, const unsigned char* const* w,
                         const F32 (&zero)[Outs], F32 (&acc)[Rows][Outs]) {
  Pair b[Outs];
#pragma GCC unroll 8
  for (int j = 0; j < Outs; ++j) {
    b[j] = Code::widen(w[j]);
    if constexpr (Code::kZero) {
      b[j].first -= zero[j];
      b[j].second -= zero[j];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
    const F32 first = load<F32>(x[i]), second = load<F32>(x[i] + kLanes);
#pragma GCC unroll 8
    for (int j = 0; j < Outs; ++j) {
      acc[i][j] = fma(first, b[j].first, acc[i][j]);
      acc[i][j] = fma(second, b[j].second, acc[i][j]);
    }
  }
}

template <class Code, int Rows, int Outs>
void dot_codes_tile(const float* x, std::int64_t x_stride, const CodeRows& w, std::int64_t k,
                    float* y, std::int64_t y_stride) {
  const float* xs[Rows];
  const unsigned char* ws[Outs];
  F32 zero[Outs] = {}, acc[Rows][Outs] = {};
#pragma GCC unroll 8
  for (int j = 0; Code::kZero && j < Outs; ++j) zero[j] = splat(w.zero[j]);
  std::int64_t at = 0;
  for (; at + kPair <= k; at += kPair) {
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) xs[i] = x + i * x_stride + at;
#pragma GCC unroll 8
    for (int j = 0; j < Outs; ++j) ws[j] = w.codes[j] + at;
    code_step<Code, Rows, Outs>(xs, ws, zero, acc);
  }
  if (at < k) {  // the rest, filled up with zeros
    float rest[Rows][kPair] = {};
    unsigned char codes[Outs][kPair] = {};
    const auto count = static_cast<unsigned long>(k - at);
    for (int i = 0; i < Rows; ++i) {
      __builtin_memcpy(rest[i], x + i * x_stride + at, count * sizeof(float));
      xs[i] = rest[i];
    }
    for (int j = 0; j < Outs; ++j) {
      __builtin_memcpy(codes[j], w.codes[j] + at, count);
      ws[j] = codes[j];
    }
    code_step<Code, Rows, Outs>(xs, ws, zero, acc);
  }
  float sums[Rows * Outs];
  constexpr int kFours = Rows * Outs / 4 * 4;
#pragma GCC unroll 8
  for (int i = 0; i < kFours; i += 4) sum_four(&acc[0][0] + i, sums + i);
  for (int i = kFours; i < Rows * Outs; ++i) sums[i] = sum((&acc[0][0])[i]);
  for (int i = 0; i < Rows; ++i) {
    for (int j = 0; j < Outs; ++j) {
      y[i * y_stride + j] = sums[i * Outs + j] * Code::kTimes * w.scale[j];
    }
  }
}

template <class Code, int Rows>
void dot_codes_rows(const float* x, std::int64_t x_stride, const CodeRows& w, std::int64_t outs,
                    std::int64_t k, float* y, std::int64_t y_stride) {
  std::int64_t j = 0;
  for (; j + kCodeOuts <= outs; j += kCodeOuts) {
    dot_codes_tile<Code, Rows, kCodeOuts>(x, x_stride, rows_from(w, j), k, y + j, y_stride);
  }
  for (; j < outs; ++j) {
    dot_codes_tile<Code, Rows, 1>(x, x_stride, rows_from(w, j), k, y + j, y_stride);
  }
}

template <class Code>
void dot_codes(const float* x, std::int64_t x_stride, std::int64_t rows, const CodeRows& w,
               std::int64_t outs, std::int64_t k, float* y, std::int64_t y_stride) {
  std::int64_t i = 0;
  for (; i + kCodeQueries <= rows; i += kCodeQueries) {
    dot_codes_rows<Code, kCodeQueries>(x + i * x_stride, x_stride, w, outs, k, y + i * y_stride,
                                       y_stride);
  }
  for (; i < rows; ++i) {
    dot_codes_rows<Code, 1>(x + i * x_stride, x_stride, w, outs, k, y + i * y_stride, y_stride);
  }
}

// Rows x (Pairs * kPair) values of c, from `column` of the rows of codes on.
template <class Code, int Rows, int Pairs>
void add_codes_tile(const float* a, std::int64_t a_stride, const CodeRows& w, std::int64_t k,
                    std::int64_t column, std::int64_t part, float* c, std::int64_t c_stride) {
  constexpr int kVectors = 2 * Pairs;
  F32 acc[Rows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) acc[i][v] = load<F32>(c + i * c_stride + v * kLanes);
  }
  for (std::int64_t at = 0; at < k; ++at) {
    const unsigned char* codes = w.codes[at] + column;
    unsigned char rest[kPair] = {};
    if (Pairs == 1 && part < kPair) {
      __builtin_memcpy(rest, codes, static_cast<unsigned long>(part));
      codes = rest;
    }
    F32 row[kVectors];
#pragma GCC unroll 8
    for (int pair = 0; pair < Pairs; ++pair) {
      const Pair two = Code::widen(codes + pair * kPair);
      row[2 * pair] = two.first;
      row[2 * pair + 1] = two.second;
    }
    if constexpr (Code::kZero) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) row[v] -= splat(w.zero[at]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
      const F32 factor = splat(a[i * a_stride + at]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) acc[i][v] = fma(factor, row[v], acc[i][v]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) store(c + i * c_stride + v * kLanes, acc[i][v]);
  }
}

template <class Code, int Rows>
void add_codes_rows(const float* a, std::int64_t a_stride, const CodeRows& w, std::int64_t k,
                    float* c, std::int64_t c_stride, std::int64_t n) {
  constexpr int kWide = kCodePairs * kPair;
  std::int64_t column = 0;
  for (; column + kWide <= n; column += kWide) {
    add_codes_tile<Code, Rows, kCodePairs>(a, a_stride, w, k, column, kPair, c + column, c_stride);
  }
  for (; column < n; column += kPair) {
    const std::int64_t part = n - column < kPair ? n - column : kPair;
    const auto bytes = static_cast<unsigned long>(part) * sizeof(float);
    float rest[Rows][kPair] = {};
    for (int i = 0; i < Rows; ++i) __builtin_memcpy(rest[i], c + i * c_stride + column, bytes);
    add_codes_tile<Code, Rows, 1>(a, a_stride, w, k, column, part, rest[0], kPair);
    for (int i = 0; i < Rows; ++i) __builtin_memcpy(c + i * c_stride + column, rest[i], bytes);
  }
}

template <class Code>
void add_codes(float* a, std::int64_t a_stride, std::int64_t rows, const CodeRows& w,
               std::int64_t k, float* c, std::int64_t c_stride, std::int64_t n) {
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < k; ++j) a[i * a_stride + j] *= Code::kTimes * w.scale[j];
  }
  std::int64_t i = 0;
  for (; i + kCodeQueries <= rows; i += kCodeQueries) {
    add_codes_rows<Code, kCodeQueries>(a + i * a_stride, a_stride, w, k, c + i * c_stride, c_stride,
                                       n);
  }
  for (; i < rows; ++i) {
    add_codes_rows<Code, 1>(a + i * a_stride, a_stride, w, k, c + i * c_stride, c_stride, n);
  }
}

}  // namespace
