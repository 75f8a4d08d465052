// The bias that attention adds to the score of a head for a key `distance` on from its query
// (position_bias, paged_params.h).
#pragma once

#include <cstdint>

#include "kernels/cpu/mask_code.h"
#include "kernels/params/tensor.h"

namespace attnscope {

double distance_bias(const as_tensor& bias, std::int32_t most, bool causal, std::int64_t distance,
                     std::int64_t head);

// The logit behind a user's score function, -infinity where the user's mask hides the key.
double user_logit(const as_tensor& mask, const as_tensor& score, const cpu::MaskPlace& place,
                  double logit);

}  // namespace attnscope
