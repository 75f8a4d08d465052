// sparse_attention with Hopper's own instructions.
#pragma once

#include "kernels/cuda/ops.h"

namespace attnscope::cuda::hopper {

bool takes(const as_sparse_attention_params& p, const Gpu& gpu);
// Blocks that a token's tiles are split over.
int splits_for(const as_sparse_attention_params& p, const Gpu& gpu);
int sparse_attention(const as_sparse_attention_params& p, const Launch& launch);

}  // namespace attnscope::cuda::hopper
