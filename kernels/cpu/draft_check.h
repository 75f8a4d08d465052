// What both lanes ask of draft_norm's params before they touch memory.
#pragma once

#include "kernels/cpu/check.h"
#include "kernels/params/draft_params.h"

namespace attnscope::cpu {

// values: whether those of tokens may be read.
bool check_params(const as_draft_norm_params& p, bool values, Check& check);

}  // namespace attnscope::cpu
