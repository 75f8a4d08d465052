// The helper ops of the CUDA lane. Tensors as in cuda_lane.h; copy_blocks takes its sides from
// where they lie.
#pragma once

#include "kernels/params/lane_table.h"

namespace attnscope::cuda {

void enter_helpers(Lane* lane);

}  // namespace attnscope::cuda
