// The helper ops on the GPU. Tensors as in cuda_lane.h; copy_blocks takes its sides from where they
// lie.
#pragma once

#include "kernels/params/helper_table.h"

namespace attnscope::cuda {

// Where there is no GPU, or in a build without CUDA, a lane with no op at all, whose description
// says why.
const as_helper_lane* helper_lane();

}  // namespace attnscope::cuda
