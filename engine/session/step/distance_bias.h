// The bias that attention adds to the score of a head for a key `distance` on from its query
// (position_bias, paged_params.h).
#pragma once

#include <cstdint>

#include "kernels/params/tensor.h"

namespace attnscope {

double distance_bias(const as_tensor& bias, std::int32_t most, bool causal, std::int64_t distance,
                     std::int64_t head);

}  // namespace attnscope
