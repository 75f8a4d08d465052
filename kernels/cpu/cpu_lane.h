// The CPU lane: every op on the byte-exact caches, threads plus portable SIMD chosen at run time.
#pragma once

#include <string>
#include <vector>

#include "kernels/params/lane_table.h"

namespace attnscope::cpu {

// All ops except the host ones (schedule, block_tables), which the engine adds.
const Lane* lane();

// SIMD level in use: "generic", "avx2", "avx512", "avx512_bf16". ATTNSCOPE_SIMD=NAME forces
// a lower one.
const char* simd_level();

}  // namespace attnscope::cpu
