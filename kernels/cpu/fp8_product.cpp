#include "kernels/cpu/fp8_product.h"

#include <algorithm>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/quantise.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

constexpr std::int64_t kOuts = 32;      // outputs of a task; all under one scale of the weight
constexpr std::int64_t kRowChunk = 64;  // rows whose partial sums stay near

static_assert(kFp8Block % kOuts == 0);

void store(const as_tensor& y, std::int64_t row, std::int64_t first, std::int64_t count,
           const float* sums) {
  if (y.dtype == AS_F32) {
    std::copy_n(sums, count, at<float>(y, row, first));
  } else {
    simd::kernels().to_bf16(sums, 1.0f, count, at<std::uint16_t>(y, row, first));
  }
}

// Outputs [first, first + count) of all rows.
void multiply(const Fp8Rows& x, const as_tensor& weight, const as_tensor& weight_scale,
              std::int64_t first, std::int64_t count, const as_tensor& y) {
  const simd::Kernels& simd = simd::kernels();
  const std::int64_t blocks = x.in / kFp8Block;
  alignas(64) float w[kOuts * kFp8Block];
  alignas(64) float part[kRowChunk * kOuts];
  std::vector<float> sums(static_cast<std::size_t>(x.rows * count), 0.0f);
  for (std::int64_t b = 0; b < blocks; ++b) {
    for (std::int64_t o = 0; o < count; ++o) {
      simd.decode_e4m3(at<unsigned char>(weight, first + o, b * kFp8Block), 1.0f, kFp8Block,
                       w + o * kFp8Block);
    }
    const float weight_factor = *at<float>(weight_scale, first / kFp8Block, b);
    for (std::int64_t t = 0; t < x.rows; t += kRowChunk) {
      const std::int64_t rows = std::min(kRowChunk, x.rows - t);
      simd.gemm_f32(x.values.data() + t * x.in + b * kFp8Block, x.in, rows, w, kFp8Block, count,
                    kFp8Block, part, count);
      for (std::int64_t i = 0; i < rows; ++i) {
        const float factor =
            x.scales[static_cast<std::size_t>((t + i) * blocks + b)] * weight_factor;
        float* sum = sums.data() + (t + i) * count;
        for (std::int64_t o = 0; o < count; ++o) sum[o] += part[i * count + o] * factor;
      }
    }
  }
  for (std::int64_t t = 0; t < x.rows; ++t) store(y, t, first, count, sums.data() + t * count);
}

}  // namespace

Fp8Rows::Fp8Rows(std::int64_t row_count, std::int64_t columns)
    : rows(row_count),
      in(columns),
      values(static_cast<std::size_t>(row_count * columns)),
      scales(static_cast<std::size_t>(row_count * (columns / kFp8Block))) {}

Fp8Rows decode_rows(const as_tensor& codes, const as_tensor& scales, const as_call* call) {
  Fp8Rows out(codes.shape[0], codes.shape[1]);
  const std::int64_t blocks = scales.shape[1];
  parallel_for(call, out.rows, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      simd::kernels().decode_e4m3(at<unsigned char>(codes, t), 1.0f, out.in,
                                  out.values.data() + t * out.in);
      for (std::int64_t b = 0; b < blocks; ++b) {
        out.scales[static_cast<std::size_t>(t * blocks + b)] = *at<float>(scales, t, b);
      }
    }
  });
  return out;
}

Fp8Rows quantise_rows(const as_tensor& x, const as_call* call) {
  Fp8Rows out(x.shape[0], x.shape[1]);
  const std::int64_t blocks = out.in / kFp8Block;
  parallel_for(call, out.rows, 8, [&](std::int64_t begin, std::int64_t end) {
    const simd::Kernels& simd = simd::kernels();
    unsigned char codes[kFp8Block];
    for (std::int64_t t = begin; t < end; ++t) {
      float* row = out.values.data() + t * out.in;
      simd.from_bf16(at<std::uint16_t>(x, t), out.in, row);
      for (std::int64_t b = 0; b < blocks; ++b) {
        float* block = row + b * kFp8Block;
        const int exponent = quantise_fp8(block, kFp8Block, codes);
        simd.decode_e4m3(codes, 1.0f, kFp8Block, block);
        out.scales[static_cast<std::size_t>(t * blocks + b)] = exp2i(exponent);
      }
    }
  });
  return out;
}

void multiply_fp8(const Fp8Rows& x, const as_tensor& weight, const as_tensor& weight_scale,
                  const as_tensor& y, const as_call* call) {
  const std::int64_t outs = weight.shape[0];
  parallel_for(call, (outs + kOuts - 1) / kOuts, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t first = i * kOuts;
      multiply(x, weight, weight_scale, first, std::min(kOuts, outs - first), y);
    }
  });
}

}  // namespace attnscope::cpu
