// The inputs of a projection in FP8, quantised.
#pragma once

#include <cstdint>

#include "kernels/cuda/ops.h"

namespace attnscope::cuda {

constexpr std::int64_t kFp8Block = AS_PROJECTION_BLOCK;  // inputs that share a scale

// bf16 [T,in] -> codes [T,in] and scales [in/128,T], both dense. Returns a cudaError_t.
int quantise_rows(const as_tensor& x, unsigned char* codes, float* scales, const Launch& launch);

}  // namespace attnscope::cuda
