// Matrix products of the projections: y[b][t,o] = sum_i x[b][t,i] * weight[b][o,i], bf16 in, fp32
// sums, bf16 or fp32 out. Strides in elements.
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
};

// A kernel of ours: any shape and alignment. Returns a cudaError_t.
int multiply(const Product& product, const Launch& launch);

// cuBLASLt, found when the program runs. False: not there, or not able to do this product.
bool library_multiply(const Product& product, const Launch& launch);

// What the library may want as a workspace; 0 when it is not there.
std::size_t library_workspace();

}  // namespace attnscope::cuda
