// Weights on the device that references work on, kept there between calls: they are most of what a
// step reads, and the way to a GPU is slow.
#pragma once

#include <cstdint>

#include "reference/torch/tensors.h"

namespace attnscope::reference {

// What the tensor holds, in its own dtype, on torch_device(). number: as_call::weights; other than
// 0 the copy on a GPU is kept for calls with the same number, and forgotten with the first of
// another.
Tensor weight_in_place(const as_tensor& weight, std::uint64_t number);

}  // namespace attnscope::reference
