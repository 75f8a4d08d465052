// Matrix products of the projections: y[b][t,o] = sum_i x[b][t,i] * weight[b][o,i], bf16 in, fp32
// sums, bf16 or fp32 out; or e4m3 codes with scales in place of bf16. Strides in elements.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/ops.h"

namespace attnscope::cuda {

struct Product {
  const void* x;
  const void* weight;
  void* y;
  std::int64_t rows, in, out, batches;
  std::int64_t x_stride, weight_stride, y_stride;  // from row to row
  std::int64_t x_batch, weight_batch, y_batch;     // from batch to batch
  bool wide;                                       // y is fp32
  bool by_input;                                   // weight is [in, out]: its rows are inputs; bf16
  // Set together: x and weight are codes, in and out multiples of 128, one batch.
  const float* x_scale;              // [in/128, rows]
  const float* weight_scale;         // [out/128, in/128]
  std::int64_t weight_scale_stride;  // from row to row
};

// By whichever of the following is there and fastest; bf16 in. Returns a cudaError_t.
int project(const Product& product, const Launch& launch);

// A kernel of ours, bf16 in: any shape and alignment. Returns a cudaError_t.
int multiply(const Product& product, const Launch& launch);

// A kernel of ours for up to 8 rows, bf16 in, at the speed of memory.
bool can_multiply_few(const Product& product);
int multiply_few(const Product& product, const Launch& launch);

// cuBLASLt, found when the program runs. False: not there, or not able to do this product.
bool library_multiply(const Product& product, const Launch& launch);

// Whether the library there is multiplies codes with their scales on this GPU at all.
bool library_has_fp8();

// What the library may want as a workspace; 0 when it is not there.
std::size_t library_workspace();

}  // namespace attnscope::cuda
