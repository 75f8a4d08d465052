// What ops that move rows or blocks ask of their params, on the CPU and on the GPU. Tensors are
// marked as host memory whichever they are; `values` says whether they may be read.
#pragma once

#include "kernels/cpu/check.h"
#include "kernels/params/offload_params.h"

namespace attnscope::cpu {

bool check_params(const as_exchange_rows_params& p, bool values, Check& check);
bool check_params(const as_swap_out_params& p, bool values, Check& check);
bool check_params(const as_swap_in_params& p, bool values, Check& check);

}  // namespace attnscope::cpu
