// What a projection's params must be like, on every lane.
#pragma once

#include "kernels/cpu/check.h"
#include "kernels/params/dense_params.h"

namespace attnscope::cpu {

bool check_linear(const as_linear_params& p, Check& check);
bool check_grouped_linear(const as_grouped_linear_params& p, Check& check);

}  // namespace attnscope::cpu
