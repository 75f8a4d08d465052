// Projections in FP8, switch projections=fp8: e4m3 codes with a scale for each block of 128 x 128,
// as published checkpoints have them. Those whose sides are no multiples of 128 stay bf16.
#pragma once

#include "engine/model/fp8_blocks.h"
#include "engine/model/model_config.h"
#include "engine/model/weights.h"

namespace attnscope {

// Whether a projection [rows, columns] of this model is held in FP8.
bool runs_in_fp8(const ModelConfig& config, std::int64_t rows, std::int64_t columns);

Fp8Matrix allocate_fp8(std::int64_t rows, std::int64_t columns);
// Into memory of a matrix, or of whole rows of blocks of one.
void store_fp8(const Fp8Blocks& blocks, std::uint8_t* codes, float* scales);
Buffer<bf16_t> decoded(const Fp8Matrix& matrix, const as_threads* threads);

// Quantises a projection in bf16 that is to run in FP8, by encode_fp8_blocks().
void quantise_projection(const ModelConfig& config, Weight& weight, const as_threads* threads);

}  // namespace attnscope
