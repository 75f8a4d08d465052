// The CUDA lane: every op on the GPU, on the same byte-exact caches as the CPU lane.
//
// Ops take tensors that all lie on the GPU (device 1: launched on as_call::stream, not waited for)
// or all on the host (device 0: copied there and back, done on return).
#pragma once

#include <cstddef>

#include "kernels/params/lane_table.h"

namespace attnscope::cuda {

// All ops except the host ones (schedule, block_tables). Where there is no GPU, or in a build
// without CUDA, a lane with no op at all, whose description says why.
const Lane* lane();

// What multiplies projections in FP8: "cuBLASLt" or "own kernel"; empty without a GPU. cuBLASLt may
// still decline a shape, which then goes to the own kernel.
const char* fp8_projections();

}  // namespace attnscope::cuda
