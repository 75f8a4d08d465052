// What attention_plan asks of its params, and sparse_attention of the plan that it is given, on the
// CPU and on the GPU. Tensors are marked as host memory whichever they are; `values` says whether
// they may be read.
#pragma once

#include "kernels/cpu/check.h"
#include "kernels/params/attention_params.h"

namespace attnscope::cpu {

bool check_params(const as_attention_plan_params& p, bool values, Check& check);

// Both tensors of a plan or none; splits that its rows name are theirs.
bool check_plan(const as_sparse_attention_params& p, bool values, Check& check);

}  // namespace attnscope::cpu
