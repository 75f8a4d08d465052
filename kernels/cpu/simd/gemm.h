// Register-tiled matrix products of the level being compiled. Included by level.cpp only.
#pragma once

#include <type_traits>

#include "kernels/cpu/simd/vec.h"

namespace {

#if defined(__AVX512F__)  // accumulators of a tile: 24 of 32 registers, 9 of 16 otherwise
constexpr int kTileRows = 6;
constexpr int kTileOuts = 4;
#else
constexpr int kTileRows = 3;
constexpr int kTileOuts = 3;
#endif
#if defined(__AVX512BF16__)
constexpr bool kPairs = true;  // products of bf16 by instructions for pairs
#else
constexpr bool kPairs = false;
#endif
constexpr int kSingleRowOuts = 8;  // outputs at once when there is one row: hides the latency

// Two vectors of a row at a time. bf16: a register of pairs gives its even and its odd values with
// one operation each; as both operands are split alike, the products are the same.
struct Bf16 {
  using Element = std::uint16_t;
  static constexpr int kStep = 2 * kLanes;
  AS_INLINE F32 first(const Element* p) { return as_float(load<U32>(p) << 16); }
  AS_INLINE F32 second(const Element* p) { return as_float(load<U32>(p) & 0xffff0000u); }
};
struct Float {
  using Element = float;
  static constexpr int kStep = 2 * kLanes;
  AS_INLINE F32 first(const Element* p) { return load<F32>(p); }
  AS_INLINE F32 second(const Element* p) { return load<F32>(p + kLanes); }
};

template <class Type, int Rows, int Outs>
AS_INLINE void dot_step(const typename Type::Element* const* x,
                        const typename Type::Element* const* w, std::int64_t k,
                        F32 (&acc)[Rows][Outs]) {
#if defined(__AVX512BF16__)
  // Both values of a pair by one instruction. Products are exact; subnormal numbers count as zero.
  if constexpr (std::is_same_v<Type, Bf16>) {
    __m512bh pairs[Outs];
#pragma GCC unroll 8
    for (int j = 0; j < Outs; ++j) pairs[j] = load<__m512bh>(w[j] + k);
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
      const auto a = load<__m512bh>(x[i] + k);
#pragma GCC unroll 8
      for (int j = 0; j < Outs; ++j) {
        acc[i][j] = (F32)_mm512_dpbf16_ps((__m512)acc[i][j], a, pairs[j]);
      }
    }
    return;
  }
#endif
  F32 b[Outs];
#pragma GCC unroll 8
  for (int j = 0; j < Outs; ++j) b[j] = Type::first(w[j] + k);
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
    const F32 a = Type::first(x[i] + k);
#pragma GCC unroll 8
    for (int j = 0; j < Outs; ++j) acc[i][j] = fma(a, b[j], acc[i][j]);
  }
#pragma GCC unroll 8
  for (int j = 0; j < Outs; ++j) b[j] = Type::second(w[j] + k);
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
    const F32 a = Type::second(x[i] + k);
#pragma GCC unroll 8
    for (int j = 0; j < Outs; ++j) acc[i][j] = fma(a, b[j], acc[i][j]);
  }
}

// Sums of the lanes of each vector, four at once; `more`: added to what is there.
template <int Outs>
AS_INLINE void sums(const F32 (&v)[Outs], bool more, float* y) {
  if constexpr (Outs >= 3) {
#pragma GCC unroll 2
    for (int j = 0; j < Outs; j += 4) {
      F32 four[4] = {};
      const int count = Outs - j < 4 ? Outs - j : 4;
#pragma GCC unroll 4
      for (int i = 0; i < count; ++i) four[i] = v[j + i];
      float out[4];
      sum_four(four, out);
#pragma GCC unroll 4
      for (int i = 0; i < count; ++i) y[j + i] = more ? y[j + i] + out[i] : out[i];
    }
  } else {
    for (int j = 0; j < Outs; ++j) y[j] = more ? y[j] + sum(v[j]) : sum(v[j]);
  }
}

// One tile of dot products of length k.
template <class Type, int Rows, int Outs>
void dot_tile(const typename Type::Element* x, std::int64_t x_stride,
              const typename Type::Element* w, std::int64_t w_stride, std::int64_t k, bool more,
              float* y, std::int64_t y_stride) {
  using Element = typename Type::Element;
  const Element* xs[Rows];
  const Element* ws[Outs];
  for (int i = 0; i < Rows; ++i) xs[i] = x + i * x_stride;
  for (int j = 0; j < Outs; ++j) ws[j] = w + j * w_stride;
  F32 acc[Rows][Outs];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < Outs; ++j) acc[i][j] = F32{};
  }
  const std::int64_t full = k / Type::kStep * Type::kStep;
  for (std::int64_t at = 0; at < full; at += Type::kStep) {
    dot_step<Type, Rows, Outs>(xs, ws, at, acc);
  }
  if (full < k) {  // the rest, filled up with zeros
    Element tail[Rows + Outs][Type::kStep] = {};
    const auto bytes = static_cast<unsigned long>(k - full) * sizeof(Element);
    for (int i = 0; i < Rows; ++i) {
      __builtin_memcpy(tail[i], xs[i] + full, bytes);
      xs[i] = tail[i];
    }
    for (int j = 0; j < Outs; ++j) {
      __builtin_memcpy(tail[Rows + j], ws[j] + full, bytes);
      ws[j] = tail[Rows + j];
    }
    dot_step<Type, Rows, Outs>(xs, ws, 0, acc);
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) sums<Outs>(acc[i], more, y + i * y_stride);
}

template <class Type>
using TileFn = void (*)(const typename Type::Element*, std::int64_t, const typename Type::Element*,
                        std::int64_t, std::int64_t, bool, float*, std::int64_t);

template <class Type, int Outs>
TileFn<Type> tile_of_rows(std::int64_t rows) {
  switch (rows) {
    case 1:
      return dot_tile<Type, 1, Outs>;
    case 2:
      return dot_tile<Type, 2, Outs>;
#if defined(__AVX512F__)
    case 3:
      return dot_tile<Type, 3, Outs>;
    case 4:
      return dot_tile<Type, 4, Outs>;
    case 5:
      return dot_tile<Type, 5, Outs>;
#endif
    default:
      return dot_tile<Type, kTileRows, Outs>;
  }
}

// Long rows are summed up part by part, so that a tile's part of x stays in the L1 cache.
constexpr std::int64_t kPart = 1024;

template <class Type>
void dot_row(const typename Type::Element* x, const typename Type::Element* w,
             std::int64_t w_stride, std::int64_t outs, std::int64_t k, float* y) {
  std::int64_t j = 0;
  for (; j + kSingleRowOuts <= outs; j += kSingleRowOuts) {
    for (std::int64_t at = 0; at == 0 || at < k; at += kPart) {
      dot_tile<Type, 1, kSingleRowOuts>(x + at, 0, w + j * w_stride + at, w_stride,
                                        k - at < kPart ? k - at : kPart, at > 0, y + j, 0);
    }
  }
  for (; j < outs; ++j) {
    for (std::int64_t at = 0; at == 0 || at < k; at += kPart) {
      dot_tile<Type, 1, 1>(x + at, 0, w + j * w_stride + at, w_stride,
                           k - at < kPart ? k - at : kPart, at > 0, y + j, 0);
    }
  }
}

template <class Type>
void dot_gemm(const typename Type::Element* x, std::int64_t x_stride, std::int64_t rows,
              const typename Type::Element* w, std::int64_t w_stride, std::int64_t outs,
              std::int64_t k, float* y, std::int64_t y_stride) {
  if (rows == 1) return dot_row<Type>(x, w, w_stride, outs, k, y);
  for (std::int64_t at = 0; at == 0 || at < k; at += kPart) {
    const std::int64_t part = k - at < kPart ? k - at : kPart;
    for (std::int64_t i = 0; i < rows; i += kTileRows) {
      const std::int64_t count = rows - i < kTileRows ? rows - i : kTileRows;
      const TileFn<Type> wide = tile_of_rows<Type, kTileOuts>(count);
      const TileFn<Type> narrow = tile_of_rows<Type, 1>(count);
      const auto* from = x + i * x_stride + at;
      float* to = y + i * y_stride;
      std::int64_t j = 0;
      for (; j + kTileOuts <= outs; j += kTileOuts) {
        wide(from, x_stride, w + j * w_stride + at, w_stride, part, at > 0, to + j, y_stride);
      }
      for (; j < outs; ++j) {
        narrow(from, x_stride, w + j * w_stride + at, w_stride, part, at > 0, to + j, y_stride);
      }
    }
  }
}

#if defined(__AVX512F__)
constexpr int kAddRows = 6;
#else
constexpr int kAddRows = 4;
#endif
constexpr int kAddVectors = kLanes == 16 ? 4 : 2;

// Rows x (Vectors * kLanes) values of c += a b.
template <int Rows, int Vectors>
void add_tile(const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride,
              std::int64_t k, float* c, std::int64_t c_stride) {
  F32 acc[Rows][Vectors];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) acc[i][v] = load<F32>(c + i * c_stride + v * kLanes);
  }
  for (std::int64_t at = 0; at < k; ++at) {
    F32 row[Vectors];
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) row[v] = load<F32>(b + at * b_stride + v * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
      const F32 factor = splat(a[i * a_stride + at]);
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) acc[i][v] = fma(factor, row[v], acc[i][v]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) store(c + i * c_stride + v * kLanes, acc[i][v]);
  }
}

template <int Vectors>
AS_INLINE void add_columns(const float* a, std::int64_t a_stride, std::int64_t rows, const float* b,
                           std::int64_t b_stride, std::int64_t k, float* c, std::int64_t c_stride) {
  std::int64_t i = 0;
  for (; i + kAddRows <= rows; i += kAddRows) {
    add_tile<kAddRows, Vectors>(a + i * a_stride, a_stride, b, b_stride, k, c + i * c_stride,
                                c_stride);
  }
  if constexpr (kAddRows > 4) {
    for (; i + 4 <= rows; i += 4) {
      add_tile<4, Vectors>(a + i * a_stride, a_stride, b, b_stride, k, c + i * c_stride, c_stride);
    }
  }
  for (; i + 2 <= rows; i += 2) {
    add_tile<2, Vectors>(a + i * a_stride, a_stride, b, b_stride, k, c + i * c_stride, c_stride);
  }
  for (; i < rows; ++i) {
    add_tile<1, Vectors>(a + i * a_stride, a_stride, b, b_stride, k, c + i * c_stride, c_stride);
  }
}

void gemm_add(const float* a, std::int64_t a_stride, std::int64_t rows, const float* b,
              std::int64_t b_stride, std::int64_t k, float* c, std::int64_t c_stride,
              std::int64_t n) {
  std::int64_t column = 0;
  for (; column + kAddVectors * kLanes <= n; column += kAddVectors * kLanes) {
    add_columns<kAddVectors>(a, a_stride, rows, b + column, b_stride, k, c + column, c_stride);
  }
  for (; column < n; column += kLanes) {
    add_columns<1>(a, a_stride, rows, b + column, b_stride, k, c + column, c_stride);
  }
}

}  // namespace
