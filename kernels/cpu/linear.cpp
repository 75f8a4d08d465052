// linear (all projections) and grouped_linear (wo_a): bf16 rows times bf16 weights, summed in fp32;
// in FP8 (fp8_product.h) codes times codes.
#include <algorithm>

#include "kernels/cpu/fp8_product.h"
#include "kernels/cpu/linear_check.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

using Bits = std::uint16_t;

constexpr std::int64_t kWeightBytes = 256 * 1024;  // weights of a block of outputs, inside L2
constexpr std::int64_t kMaxOuts = 64;
constexpr std::int64_t kRowChunk = 48;           // rows whose fp32 results wait for rounding
constexpr std::int64_t kChunkMacs = 256 * 1024;  // least work worth handing to a thread

// One matrix product of rows [T,in] with weight [out,in].
struct Product {
  const Bits* x;
  std::int64_t x_stride;
  const Bits* weight;
  std::int64_t weight_stride;
  void* y;
  std::int64_t y_stride;
  std::int32_t y_dtype;
};

std::int64_t outs_per_block(std::int64_t in) {
  return std::clamp<std::int64_t>(kWeightBytes / (2 * std::max<std::int64_t>(in, 1)) / 8 * 8, 8,
                                  kMaxOuts);
}

// Outputs [first, last) of all rows.
void multiply(const Product& m, std::int64_t rows, std::int64_t in, std::int64_t first,
              std::int64_t last) {
  const simd::Kernels& simd = simd::kernels();
  const Bits* weight = m.weight + first * m.weight_stride;
  const std::int64_t outs = last - first;
  if (m.y_dtype == AS_F32) {
    simd.gemm_bf16(m.x, m.x_stride, rows, weight, m.weight_stride, outs, in,
                   static_cast<float*>(m.y) + first, m.y_stride);
    return;
  }
  alignas(64) float sums[kRowChunk * kMaxOuts];
  for (std::int64_t t = 0; t < rows; t += kRowChunk) {
    const std::int64_t count = std::min(kRowChunk, rows - t);
    simd.gemm_bf16(m.x + t * m.x_stride, m.x_stride, count, weight, m.weight_stride, outs, in, sums,
                   outs);
    for (std::int64_t i = 0; i < count; ++i) {
      simd.to_bf16(sums + i * outs, 1.0f, outs,
                   static_cast<Bits*>(m.y) + (t + i) * m.y_stride + first);
    }
  }
}

// A tensor of three axes without its place on one of them.
as_tensor group_of(as_tensor t, int axis, std::int64_t group) {
  t.data = at<unsigned char>(t) + group * t.stride[axis] * as_dtype_size(t.dtype);
  for (int i = axis; i < 2; ++i) {
    t.shape[i] = t.shape[i + 1];
    t.stride[i] = t.stride[i + 1];
  }
  t.rank = 2;
  return t;
}

std::int64_t grain(std::int64_t rows, std::int64_t in, std::int64_t outs) {
  return std::max<std::int64_t>(1, kChunkMacs / std::max<std::int64_t>(rows * in * outs, 1));
}

}  // namespace

void linear(const as_linear_params& p, const as_call* call, Check& check) {
  if (!check_linear(p, check)) return;
  const std::int64_t rows = p.x.shape[0];
  const std::int64_t in = p.weight.shape[1];
  const std::int64_t out = p.weight.shape[0];
  if (rows == 0) return;
  if (p.weight.dtype == AS_U8) {
    return multiply_fp8(quantise_rows(p.x, call), p.weight, p.weight_scale, p.y, call);
  }
  const Product product = {at<Bits>(p.x), p.x.stride[0], at<Bits>(p.weight), p.weight.stride[0],
                           p.y.data,      p.y.stride[0], p.y.dtype};
  const std::int64_t block = outs_per_block(in);
  parallel_for(call, (out + block - 1) / block, grain(rows, in, block),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t b = begin; b < end; ++b) {
                   multiply(product, rows, in, b * block, std::min(out, (b + 1) * block));
                 }
               });
}

void grouped_linear(const as_grouped_linear_params& p, const as_call* call, Check& check) {
  if (!check_grouped_linear(p, check)) return;
  const std::int64_t groups = p.weight.shape[0];
  const std::int64_t out = p.weight.shape[1];
  const std::int64_t in = p.weight.shape[2];
  const std::int64_t rows = p.x.shape[0];
  if (rows == 0) return;
  if (p.weight.dtype == AS_U8) {
    for (std::int64_t g = 0; g < groups; ++g) {
      const Fp8Rows x = decode_rows(group_of(p.x, 1, g), group_of(p.x_scale, 1, g), call);
      multiply_fp8(x, group_of(p.weight, 0, g), group_of(p.weight_scale, 0, g), group_of(p.y, 1, g),
                   call);
    }
    return;
  }
  const std::int64_t block = outs_per_block(in);
  const std::int64_t blocks = (out + block - 1) / block;
  parallel_for(call, groups * blocks, grain(rows, in, block),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t item = begin; item < end; ++item) {
                   const std::int64_t g = item / blocks;
                   const std::int64_t first = item % blocks * block;
                   const Product product = {at<Bits>(p.x, 0, g),
                                            p.x.stride[0],
                                            at<Bits>(p.weight, g),
                                            p.weight.stride[1],
                                            at<Bits>(p.y, 0, g),
                                            p.y.stride[0],
                                            AS_BF16};
                   multiply(product, rows, in, first, std::min(out, first + block));
                 }
               });
}

}  // namespace attnscope::cpu
