// varlen_attention by tiles of queries on Hopper's tensor cores.
#pragma once

#include "kernels/cuda/ops.h"

namespace attnscope::cuda::varlen {

// Heads of chunks of 16 bytes, at most 256 dims, results that need not be exact.
bool takes(const as_varlen_attention_params& p, const Gpu& gpu);
int attend_tiles(const as_varlen_attention_params& p, const Launch& launch);

}  // namespace attnscope::cuda::varlen
