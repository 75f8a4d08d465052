// Primitives of the hot loops, one set per SIMD level, reached through a table of functions.
//
// Sums run in an order that depends on the level and the length of the row only, never on how many
// rows a call has: a row gives the same bytes alone and in a batch.
#pragma once

#include <cstdint>

namespace attnscope::cpu::simd {

constexpr int kInfiniteExponent = 1024;

// Rows of codes of one kind, each with what they are read as: (code - zero) * scale.
struct CodeRows {
  const unsigned char* const* codes = nullptr;
  const float* scale = nullptr;
  const float* zero = nullptr;  // of int8 alone
};

// Products over them.
struct CodeKernels {
  // y[i,j] = scale[j] * sum_k x[i,k] * (codes[j][k] - zero[j])
  void (*dot)(const float* x, std::int64_t x_stride, std::int64_t rows, const CodeRows& w,
              std::int64_t outs, std::int64_t k, float* y, std::int64_t y_stride);
  // c[i,n] += sum_j a[i,j] * scale[j] * (codes[j][n] - zero[j]). a becomes what codes are
  // multiplied with.
  void (*add)(float* a, std::int64_t a_stride, std::int64_t rows, const CodeRows& w, std::int64_t k,
              float* c, std::int64_t c_stride, std::int64_t n);
};

// Heads of bf16 of one token whose last 64 numbers, pairs, are turned by a row of the rotary table,
// 32 cosines then 32 sines: e' = e cos - o sin, o' = e sin + o cos, sines times `sign`. y may be x.
struct Turn {
  const std::uint16_t* x = nullptr;
  std::uint16_t* y = nullptr;
  std::int64_t x_stride = 0, y_stride = 0;  // in numbers
  std::int64_t rows = 0, width = 0;
  const float* table = nullptr;
  float sign = 1.0f;
  const float* factors = nullptr;  // of the rows, multiplied in first; none: others are copied
  bool finite = false;             // products with factors are no NaN
  bool rounded = false;            // products are rounded to bf16 before they are turned
  bool stream = false;             // past the caches where rows allow it, until end_stream
};

struct Kernels {
  const char* name;
  bool pairs;  // gemm_bf16 multiplies pairs, twice as fast as gemm_f32 multiplies numbers

  // y[i,j] = sum_k x[i,k] * w[j,k], bf16 in, f32 out. Strides in elements.
  void (*gemm_bf16)(const std::uint16_t* x, std::int64_t x_stride, std::int64_t rows,
                    const std::uint16_t* w, std::int64_t w_stride, std::int64_t outs,
                    std::int64_t k, float* y, std::int64_t y_stride);
  // The same on f32.
  void (*gemm_f32)(const float* x, std::int64_t x_stride, std::int64_t rows, const float* w,
                   std::int64_t w_stride, std::int64_t outs, std::int64_t k, float* y,
                   std::int64_t y_stride);
  // c[i,n] += sum_k a[i,k] * b[k,n]; n is a multiple of 16.
  void (*gemm_add)(const float* a, std::int64_t a_stride, std::int64_t rows, const float* b,
                   std::int64_t b_stride, std::int64_t k, float* c, std::int64_t c_stride,
                   std::int64_t n);

  // x *= scale; returns the largest product (NaN counts as nothing).
  float (*scale_max)(float* x, std::int64_t n, float scale);
  // x = cap * tanh(x / cap).
  void (*soft_cap)(float* x, std::int64_t n, float cap);
  // x = exp(x - shift); returns the sum.
  float (*exp_sum)(float* x, std::int64_t n, float shift);
  void (*scale)(float* x, std::int64_t n, float scale);

  float (*sum_squares_bf16)(const std::uint16_t* x, std::int64_t n);
  float (*sum_squares)(const float* x, std::int64_t n);
  // The same of rows of bf16, each in an order of its own.
  void (*sum_squares_rows)(const std::uint16_t* x, std::int64_t stride, std::int64_t rows,
                           std::int64_t n, float* sums);
  // Sum of their squares, which may be rounded to bf16, in float64: the same at every level.
  double (*sum_bf16_squares)(const std::uint16_t* x, std::int64_t n, bool rounded);
  void (*turn_heads)(const Turn& t);
  // Other threads may read what this one streamed.
  void (*end_stream)();
  // y = bf16(x * scale * weight); weight may be null (1).
  void (*scale_bf16)(const std::uint16_t* x, float scale, const std::uint16_t* weight,
                     std::int64_t n, std::uint16_t* y);
  void (*add_bf16)(const std::uint16_t* a, const std::uint16_t* b, std::int64_t n,
                   std::uint16_t* y);
  void (*from_bf16)(const std::uint16_t* x, std::int64_t n, float* y);
  // The same of numbers that bf16 holds.
  void (*upper_halves)(const float* x, std::int64_t n, std::uint16_t* y);
  void (*from_f16)(const std::uint16_t* x, std::int64_t n, float* y);
  // y = bf16(x * scale).
  void (*to_bf16)(const float* x, float scale, std::int64_t n, std::uint16_t* y);

  // y = e4m3fn(code) * scale, and below its inverse y = code(x * scale), saturating.
  void (*decode_e4m3)(const unsigned char* codes, float scale, std::int64_t n, float* y);
  // y[k,j] = e4m3fn(codes[j][k]): rows of n codes as columns. count is a multiple of 16, n of 64.
  void (*decode_e4m3_columns)(const unsigned char* const* codes, std::int64_t count, std::int64_t n,
                              float* y, std::int64_t y_stride);
  void (*encode_e4m3)(const float* x, float scale, std::int64_t n, unsigned char* codes);
  // Codes of blocks of bf16, block by block with exponent e of the least scale 2^e so that 448 *
  // 2^e reaches the block's largest |x|, or `least` (normal); NaN counts as nothing, becomes 0x7f.
  // An infinite one gives kInfiniteExponent and codes of x * 0. block is a multiple of 64.
  void (*quantise_blocks)(const std::uint16_t* x, std::int64_t n, std::int64_t block, float least,
                          unsigned char* codes, std::int32_t* exponents);
  // Largest |x|; NaN counts as nothing.
  float (*abs_max)(const float* x, std::int64_t n);

  // Smallest and largest of x and 0.
  void (*range)(const float* x, std::int64_t n, float* low, float* high);
  // x = x / by.
  void (*divide)(float* x, std::int64_t n, float by);
  // y = e5m2(code) * scale, and y = code(x), saturating, infinities too; NaN becomes 0x7f.
  void (*decode_e5m2)(const unsigned char* codes, float scale, std::int64_t n, float* y);
  void (*encode_e5m2)(const float* x, std::int64_t n, unsigned char* codes);
  // y = (int8(code) - zero) * scale, and y = clamp(rint(x) + zero) to -128 .. 127; zero is a whole
  // number.
  void (*decode_i8)(const unsigned char* codes, float scale, float zero, std::int64_t n, float* y);
  void (*encode_i8)(const float* x, float zero, std::int64_t n, unsigned char* codes);

  CodeKernels e4m3, e5m2, i8;

  // A score's key is an unsigned number in the order of the scores: NaN below everything, -0 equal
  // to 0. best[i] = the largest key of x[i], x[i + groups], ..; groups is a multiple of 16, n at
  // least groups.
  void (*best_keys)(const float* x, std::int64_t n, std::int64_t groups, std::uint32_t* best);
  // Keys that reach the bound, in the order of x, and their places. Their number; both have room
  // for n + 16.
  std::int64_t (*collect)(const float* x, std::int64_t n, std::uint32_t bound, std::uint32_t* keys,
                          std::int32_t* places);

  // Per channel: softmax of the scores over the rows, weighted sum of the values. Rows without a
  // pointer are masked out.
  void (*pool)(const float* const* values, const float* const* scores, int rows, std::int64_t n,
               float* y);

  // y[c] = scale[c] * sum_j max(dots[j,c], 0) * weights[j], summed in float64. n <= stride.
  void (*relu_weighted_sum)(const float* dots, std::int64_t stride, const float* weights, int heads,
                            const float* scale, std::int64_t n, float* y);
};

// The best level of this machine, or the one that ATTNSCOPE_SIMD names.
const Kernels& kernels();

// Every level that this machine can run, lowest first.
struct Levels {
  const Kernels* items[4];
  int count;
};
Levels runnable_levels();

namespace generic {
const Kernels& table();
}
namespace avx2 {
const Kernels& table();
}
namespace avx512 {
const Kernels& table();
}
namespace avx512_bf16 {
const Kernels& table();
}

}  // namespace attnscope::cpu::simd
