// The work of inverse_rope, which the helper op inverse_rope_quantise has done as well.
#pragma once

#include "kernels/params/attention_params.h"
#include "kernels/params/lane.h"

namespace attnscope::cpu {

// Params that have been checked.
void turn_back(const as_inverse_rope_params& p, const as_call* call);

}  // namespace attnscope::cpu
