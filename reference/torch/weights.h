// Weights on the device that references work on, kept there between calls: they are most of what a
// step reads, and the way to a GPU is slow.
#pragma once

#include <cstdint>

#include "reference/torch/tensors.h"

namespace attnscope::reference {

// What the tensor holds, on torch_device(), in its own dtype or, of numbers, in float64. number:
// as_call::weights; other than 0 the copy on a GPU is kept for calls with the same number, and
// forgotten with the first of another. Numbers are kept in float64, which is four times the bytes
// of bf16, as long as half of the GPU's memory stays free: to convert a weight takes longer than to
// multiply it with a few rows.
Tensor weight_in_place(const as_tensor& weight, std::uint64_t number);

}  // namespace attnscope::reference
