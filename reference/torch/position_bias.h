// position_bias of attention (paged_params.h).
#pragma once

#include "reference/torch/tensors.h"

namespace attnscope::reference {

// [.., H] of the distances key - query, i64 of any shape.
Tensor position_bias(const as_tensor& bias, std::int64_t heads, std::int32_t distance, bool causal,
                     const Tensor& distances);

}  // namespace attnscope::reference
