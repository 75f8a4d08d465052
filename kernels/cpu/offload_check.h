// What exchange_rows asks of its params, on the CPU and on the GPU. Tensors are marked as host
// memory whichever they are; `values` says whether they may be read.
#pragma once

#include "kernels/cpu/check.h"
#include "kernels/params/offload_params.h"

namespace attnscope::cpu {

bool check_params(const as_exchange_rows_params& p, bool values, Check& check);

}  // namespace attnscope::cpu
