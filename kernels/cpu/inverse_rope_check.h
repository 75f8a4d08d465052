// What inverse_rope's params must be like, on every lane.
#pragma once

#include "kernels/cpu/check.h"
#include "kernels/params/attention_params.h"

namespace attnscope::cpu {

// Shapes, types and strides; positions apart.
bool check_inverse_rope(const as_inverse_rope_params& p, Check& check);

}  // namespace attnscope::cpu
