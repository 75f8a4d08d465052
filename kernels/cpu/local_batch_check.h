// What local_batch asks of its params, on the CPU and on the GPU. Tensors are marked as host memory
// whichever they are; `values` says whether they may be read.
#pragma once

#include "kernels/cpu/check.h"
#include "kernels/params/paged_params.h"

namespace attnscope::cpu {

bool check_params(const as_local_batch_params& p, bool values, Check& check);

}  // namespace attnscope::cpu
