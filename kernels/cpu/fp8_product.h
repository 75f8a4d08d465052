// The product of two matrices of e4m3 codes with a scale for each block of 128 inputs, as the
// helper op fp8_linear has it and projections in FP8 do.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/params/lane.h"
#include "kernels/params/tensor.h"

namespace attnscope::cpu {

constexpr std::int64_t kFp8Block = 128;

// Rows of codes as their values, without the scales.
struct Fp8Rows {
  std::int64_t rows = 0, in = 0;
  std::vector<float> values;  // [rows, in]
  std::vector<float> scales;  // [rows, in / 128]

  Fp8Rows(std::int64_t rows, std::int64_t in);
};

// u8 codes [T,in] with f32 scales [T,in/128].
Fp8Rows decode_rows(const as_tensor& codes, const as_tensor& scales, const as_call* call);

// bf16 [T,in], in a multiple of 128, quantised per token and block: scale
// 2^ceil(log2(max(amax, 1e-4) / 448)), codes to nearest even.
Fp8Rows quantise_rows(const as_tensor& x, const as_call* call);

// y[t,o] = sum over blocks of scale[t,b] * weight_scale[o/128,b] * (sum of a block), fp32, rounded
// once where y is bf16. A row gives the same bytes alone and among others.
void multiply_fp8(const Fp8Rows& x, const as_tensor& weight, const as_tensor& weight_scale,
                  const as_tensor& y, const as_call* call);

}  // namespace attnscope::cpu
