// What cross_batch asks of its params.
#pragma once

#include "kernels/cpu/check.h"
#include "kernels/params/paged_params.h"

namespace attnscope::cpu {

// values: whether the tensors may be read.
bool check_params(const as_cross_batch_params& p, bool values, Check& check);

}  // namespace attnscope::cpu
