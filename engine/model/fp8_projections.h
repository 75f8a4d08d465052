// Projections in FP8, switch projections=fp8: e4m3 codes with a scale for each block of 128 x 128,
// as published checkpoints have them. Those whose sides are no multiples of 128 stay bf16.
#pragma once

#include <string>
#include <vector>

#include "engine/model/fp8_blocks.h"
#include "engine/model/weights.h"

namespace attnscope {

// Whether a projection [rows, columns] of this model is held in FP8.
bool runs_in_fp8(const ModelConfig& config, std::int64_t rows, std::int64_t columns);

Fp8Matrix allocate_fp8(std::int64_t rows, std::int64_t columns);
// Into memory of a matrix, or of whole rows of blocks of one.
void store_fp8(const Fp8Blocks& blocks, std::uint8_t* codes, float* scales);
Buffer<bf16_t> decoded(const Fp8Matrix& matrix, const as_threads* threads);

// Quantises what can be, by encode_fp8_blocks(); without the switch nothing changes.
void quantise_projections(const ModelConfig& config, Weights& weights, const as_threads* threads);

// The projections that stay bf16 although the switch is on, with their shapes: "wo_b [512, 64]".
std::vector<std::string> projections_left_in_bf16(const ModelConfig& config);

// Of all weights, two bytes a parameter where it is not in FP8.
std::int64_t weight_bytes(const ModelConfig& config);

}  // namespace attnscope
