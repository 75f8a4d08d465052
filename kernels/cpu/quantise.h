// Quantising rows in bulk: the arithmetic of codec.h with the loops of kernels/cpu/simd.
#pragma once

#include <cstdint>

#include "kernels/cpu/codec.h"
#include "kernels/params/tensor.h"

namespace attnscope::cpu {

// Codes of n values that share a scale; returns the scale's exponent.
int quantise_fp8(const float* x, int n, unsigned char* codes,
                 std::int32_t scale_floor = AS_SCALE_FLOOR_1E4);

// Writes a row (bf16-valued fp32) into a cache, by its record.
void insert_row(const as_cache& cache, std::int64_t slot, const float* row,
                const QuantiseRules& rules);

}  // namespace attnscope::cpu
