// as_tensor as tensors of libtorch and back, on the device that references work on.
//
// Integers stay on the host: lists, lengths and positions say what is gathered. Numbers are
// float64.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>

#include "reference/tensors.h"
#include "reference/torch/device.h"
#include "reference/torch/numbers.h"

namespace attnscope::reference {

using at::Tensor;

// What a tensor holds, in its own dtype, on the host, without a copy.
Tensor in_place(const as_tensor& tensor);

// Throw BadInput where the tensor does not fit.
Tensor floats(const as_tensor& tensor, const char* name, Shape shape);
Tensor integers(const as_tensor& tensor, const char* name, Shape shape);
Tensor bytes(const as_tensor& tensor, const char* name, Shape shape);

// Values rounded once to a dtype.
Tensor stored_as(const Tensor& values, at::ScalarType type);
// Writes values of the same shape, rounded once to the tensor's dtype.
void put(const as_tensor& tensor, const Tensor& values);
// The same with one rounding to bf16 before: none more where the tensor is bf16, which is a good
// part of an op's time.
void put_bf16(const as_tensor& tensor, const Tensor& values, const Numbers& numbers);
// Likewise the rows `which` [n] of the tensor, values [n, ..].
void put_rows(const as_tensor& tensor, const Tensor& which, const Tensor& values);

// Parts of a tensor, in its memory.
as_tensor narrow(as_tensor tensor, int dim, std::int64_t first, std::int64_t n);
as_tensor select(const as_tensor& tensor, int dim, std::int64_t i);

// Throws BadInput naming the first index out of 0 .. size - 1, and its token: indices [T] or [T,K],
// of tokens from `first` on.
void check_indices(const Tensor& indices, std::int64_t size, const char* what,
                   std::int64_t first = 0);

// f(first, n) for blocks of rows that together have so many numbers that a cache holds them; fewer
// and larger ones on a GPU.
template <class F>
void in_blocks(std::int64_t rows, std::int64_t width, const F& f) {
  const std::int64_t numbers = torch_device().is_cpu() ? 1 << 16 : 1 << 26;
  const std::int64_t block = std::max<std::int64_t>(numbers / std::max<std::int64_t>(width, 1), 1);
  for (std::int64_t first = 0; first < rows; first += block) {
    f(first, std::min(block, rows - first));
  }
}

}  // namespace attnscope::reference
