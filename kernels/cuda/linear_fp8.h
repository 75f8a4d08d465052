// Projections in FP8: their inputs quantised, and products of groups.
#pragma once

#include <cstdint>

#include "kernels/cuda/helper_ops.h"

namespace attnscope::cuda {

constexpr std::int64_t kFp8Block = AS_PROJECTION_BLOCK;  // inputs that share a scale

// bf16 [T,in] -> codes [T,in] and scales [in/128,T], both dense. Returns a cudaError_t.
int quantise_rows(const as_tensor& x, unsigned char* codes, float* scales, const Launch& launch);

// Products of one shape whose tensors lie so many elements apart.
struct Fp8Groups {
  std::int64_t count = 1;
  std::int64_t x = 0, x_scale = 0, weight = 0, weight_scale = 0, y = 0;
};
int fp8_linear_groups(const as_fp8_linear_params& first, const Fp8Groups& groups,
                      const Launch& launch);

}  // namespace attnscope::cuda
