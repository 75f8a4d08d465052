// Quantising rows in bulk: the arithmetic of codec.h with the loops of kernels/cpu/simd.
#pragma once

#include <cstdint>

#include "kernels/cpu/codec.h"
#include "kernels/params/tensor.h"

namespace attnscope::cpu {

// Codes of n values that share a scale; returns the scale's exponent.
int quantise_fp8(const float* x, int n, unsigned char* codes,
                 std::int32_t scale_floor = AS_SCALE_FLOOR_1E4);

// The same of blocks of bf16 numbers; an exponent each.
void quantise_fp8(const std::uint16_t* x, int n, int block, unsigned char* codes, int* exponents,
                  std::int32_t scale_floor);

// Writes a row of bf16 into a cache, by its record.
void insert_row(const as_cache& cache, std::int64_t slot, const std::uint16_t* row,
                const QuantiseRules& rules);

}  // namespace attnscope::cpu
