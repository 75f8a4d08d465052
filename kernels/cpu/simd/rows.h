// Loops over one row of the level being compiled: norms, conversions, softmax parts, pooling.
// Included by level.cpp only.
#pragma once

#include "kernels/cpu/simd/codes.h"
#include "kernels/cpu/simd/vec.h"

namespace {

constexpr float kMinusInf = -__builtin_huge_valf();

// Calls body(index, count) for whole vectors, then once for the rest.
// NOLINTBEGIN(bugprone-macro-parentheses): names that it declares
#define AS_FOR_VECTORS(i, part, n) \
  for (std::int64_t i = 0, part = 0; part = (n)-i < kLanes ? (n)-i : kLanes, i < (n); i += kLanes)
// NOLINTEND(bugprone-macro-parentheses)

template <class V, class T>
AS_INLINE V get(const T* p, std::int64_t part) {
  return part == kLanes ? load<V>(p) : load_part<V>(p, part);
}
template <class V, class T>
AS_INLINE void put(T* p, V v, std::int64_t part) {
  if (part == kLanes) {
    store(p, v);
  } else {
    store_part(p, v, part);
  }
}

float scale_max(float* x, std::int64_t n, float factor) {
  F32 best = splat(kMinusInf);
  float rest = kMinusInf;
  AS_FOR_VECTORS(i, part, n) {
    const F32 v = get<F32>(x + i, part) * factor;
    put(x + i, v, part);
    if (part == kLanes) {
      best = max(best, v);
    } else {
      for (std::int64_t lane = 0; lane < part; ++lane)
        rest = x[i + lane] > rest ? x[i + lane] : rest;
    }
  }
  const float whole = max_lane(best);
  return rest > whole ? rest : whole;
}

void soft_cap(float* x, std::int64_t n, float cap) {
  const float inverse = 1.0f / cap;
  AS_FOR_VECTORS(i, part, n) { put(x + i, tanh(get<F32>(x + i, part) * inverse) * cap, part); }
}

float exp_sum(float* x, std::int64_t n, float shift) {
  F32 total{};
  float rest = 0.0f;
  AS_FOR_VECTORS(i, part, n) {
    const F32 v = exp(get<F32>(x + i, part) - shift);
    put(x + i, v, part);
    if (part == kLanes) {
      total += v;
    } else {
      for (std::int64_t lane = 0; lane < part; ++lane) rest += x[i + lane];
    }
  }
  return sum(total) + rest;
}

void scale(float* x, std::int64_t n, float factor) {
  AS_FOR_VECTORS(i, part, n) { put(x + i, get<F32>(x + i, part) * factor, part); }
}

float sum_squares_bf16(const std::uint16_t* x, std::int64_t n) {
  F32 total{};
  AS_FOR_VECTORS(i, part, n) {
    const F32 v = widen_bf16(get<U16>(x + i, part));
    total = fma(v, v, total);
  }
  return sum(total);
}

float sum_squares(const float* x, std::int64_t n) {
  F32 total{};
  AS_FOR_VECTORS(i, part, n) {
    const F32 v = get<F32>(x + i, part);
    total = fma(v, v, total);
  }
  return sum(total);
}

void scale_bf16(const std::uint16_t* x, float factor, const std::uint16_t* weight, std::int64_t n,
                std::uint16_t* y) {
  AS_FOR_VECTORS(i, part, n) {
    F32 v = widen_bf16(get<U16>(x + i, part)) * factor;
    if (weight != nullptr) v *= widen_bf16(get<U16>(weight + i, part));
    put(y + i, narrow_bf16(v), part);
  }
}

void add_bf16(const std::uint16_t* a, const std::uint16_t* b, std::int64_t n, std::uint16_t* y) {
  AS_FOR_VECTORS(i, part, n) {
    const F32 v = widen_bf16(get<U16>(a + i, part)) + widen_bf16(get<U16>(b + i, part));
    put(y + i, narrow_bf16(v), part);
  }
}

void from_bf16(const std::uint16_t* x, std::int64_t n, float* y) {
  AS_FOR_VECTORS(i, part, n) { put(y + i, widen_bf16(get<U16>(x + i, part)), part); }
}

void upper_halves(const float* x, std::int64_t n, std::uint16_t* y) {
  AS_FOR_VECTORS(i, part, n) {
    put(y + i, __builtin_convertvector(as_bits(get<F32>(x + i, part)) >> 16, U16), part);
  }
}

void from_f16(const std::uint16_t* x, std::int64_t n, float* y) {
  AS_FOR_VECTORS(i, part, n) { put(y + i, widen_f16(get<U16>(x + i, part)), part); }
}

void to_bf16(const float* x, float factor, std::int64_t n, std::uint16_t* y) {
  std::int64_t whole = 0;
#pragma GCC unroll 4
  for (; whole + kLanes <= n; whole += kLanes) {
    store(y + whole, narrow_bf16(load<F32>(x + whole) * factor));
  }
  x += whole, y += whole, n -= whole;
  AS_FOR_VECTORS(i, part, n) { put(y + i, narrow_bf16(get<F32>(x + i, part) * factor), part); }
}

void decode_e4m3_row(const unsigned char* codes, float factor, std::int64_t n, float* y) {
  std::int64_t whole = 0;
  for (; whole + kPair <= n; whole += kPair) {
    const Pair v = E4m3::widen(codes + whole);
    store(y + whole, v.first * E4m3::kTimes * factor);
    store(y + whole + kLanes, v.second * E4m3::kTimes * factor);
  }
  codes += whole, y += whole, n -= whole;
  AS_FOR_VECTORS(i, part, n) { put(y + i, decode_e4m3(get<U8>(codes + i, part)) * factor, part); }
}

void decode_e4m3_columns(const unsigned char* const* codes, std::int64_t count, std::int64_t n,
                         float* y, std::int64_t y_stride) {
  for (std::int64_t first = 0; first < count; first += kLanes) {
    for (std::int64_t word = 0; word < n / 4; word += kLanes) {
      U32 words[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) words[i] = load<U32>(codes[first + i] + 4 * word);
      transpose(words);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        float* to = y + 4 * (word + i) * y_stride + first;
        store(to, decode_e4m3(words[i] & 0xffu));
        store(to + y_stride, decode_e4m3((words[i] >> 8) & 0xffu));
        store(to + 2 * y_stride, decode_e4m3((words[i] >> 16) & 0xffu));
        store(to + 3 * y_stride, decode_e4m3(words[i] >> 24));
      }
    }
  }
}

void encode_e4m3_row(const float* x, float factor, std::int64_t n, unsigned char* codes) {
  AS_FOR_VECTORS(i, part, n) { put(codes + i, encode_e4m3(get<F32>(x + i, part) * factor), part); }
}

float abs_max(const float* x, std::int64_t n) {
  F32 best{};
  AS_FOR_VECTORS(i, part, n) {
    best = max(best, as_float(as_bits(get<F32>(x + i, part)) & 0x7fffffffu));
  }
  return max_lane(best);
}

void range(const float* x, std::int64_t n, float* low, float* high) {
  F32 least{}, most{};
  AS_FOR_VECTORS(i, part, n) {
    const F32 v = get<F32>(x + i, part);
    least = v < least ? v : least;
    most = max(most, v);
  }
  *high = max_lane(most);
  *low = -max_lane(-least);
}

void divide(float* x, std::int64_t n, float by) {
  AS_FOR_VECTORS(i, part, n) { put(x + i, get<F32>(x + i, part) / by, part); }
}

void decode_e5m2_row(const unsigned char* codes, float factor, std::int64_t n, float* y) {
  AS_FOR_VECTORS(i, part, n) { put(y + i, decode_e5m2(get<U8>(codes + i, part)) * factor, part); }
}

void encode_e5m2_row(const float* x, std::int64_t n, unsigned char* codes) {
  AS_FOR_VECTORS(i, part, n) { put(codes + i, encode_e5m2(get<F32>(x + i, part)), part); }
}

void decode_i8_row(const unsigned char* codes, float factor, float zero, std::int64_t n, float* y) {
  AS_FOR_VECTORS(i, part, n) {
    const I32 code = __builtin_convertvector((I8)get<U8>(codes + i, part), I32);
    put(y + i, (__builtin_convertvector(code, F32) - zero) * factor, part);
  }
}

void encode_i8_row(const float* x, float zero, std::int64_t n, unsigned char* codes) {
  const F32 shift = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  AS_FOR_VECTORS(i, part, n) {
    const F32 v = ((get<F32>(x + i, part) + shift) - shift) + zero;
    const F32 above = v < -128.0f ? splat(-128.0f) : v;
    const F32 inside = above > 127.0f ? splat(127.0f) : above;
    put(codes + i, __builtin_convertvector(__builtin_convertvector(inside, I32), U8), part);
  }
}

void pool(const float* const* values, const float* const* scores, int rows, std::int64_t n,
          float* y) {
  AS_FOR_VECTORS(i, part, n) {
    F32 best = splat(kMinusInf);
    for (int r = 0; r < rows; ++r) {
      if (scores[r] != nullptr) best = max(best, get<F32>(scores[r] + i, part));
    }
    F32 weight{};
    F32 total{};
    for (int r = 0; r < rows; ++r) {
      if (scores[r] == nullptr) continue;
      const F32 e = exp(get<F32>(scores[r] + i, part) - best);
      weight += e;
      total = fma(e, get<F32>(values[r] + i, part), total);
    }
    put(y + i, total / weight, part);
  }
}

void relu_weighted_sum(const float* dots, std::int64_t stride, const float* weights, int heads,
                       const float* factors, std::int64_t n, float* y) {
  AS_FOR_VECTORS(i, part, n) {
    F64 sums[2] = {};
    for (int j = 0; j < heads; ++j) {
      const F32 dot = get<F32>(dots + j * stride + i, part);
      const F32 positive = select(dot < 0.0f, F32{}, dot);  // NaN stays
      F32Half halves[2];
      __builtin_memcpy(halves, &positive, sizeof(positive));
      const double w = static_cast<double>(weights[j]);
      sums[0] += __builtin_convertvector(halves[0], F64) * w;
      sums[1] += __builtin_convertvector(halves[1], F64) * w;
    }
    const F32 factor = get<F32>(factors + i, part);
    for (std::int64_t lane = 0; lane < part; ++lane) {
      y[i + lane] =
          static_cast<float>(sums[lane / kHalf][lane % kHalf] * static_cast<double>(factor[lane]));
    }
  }
}

}  // namespace
