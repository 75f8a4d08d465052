// Projections in FP8, switch projections=fp8: e4m3 codes with a scale for each block of 128 x 128,
// as published checkpoints have them. Those whose sides are no multiples of 128 stay bf16.
//
// wo_a is a projection for each group of heads, published one below the other: [groups, out, in].
// Its groups have scales of their own, [groups, ceil(out/128), in/128], also where several lie in
// one published block.
#pragma once

#include <span>
#include <vector>

#include "engine/model/fp8_blocks.h"
#include "engine/model/model_config.h"
#include "engine/model/weights.h"

namespace attnscope {

// Whether a projection [rows, columns] of this model is held in FP8.
bool runs_in_fp8(const ModelConfig& config, std::int64_t rows, std::int64_t columns);
// The same of wo_a, each of whose groups is [rows, columns]: no published block may hold a part of
// one group and of another.
bool groups_run_in_fp8(const ModelConfig& config, std::int64_t rows, std::int64_t columns);
// Of a weight [rows, columns] or [groups, rows, columns].
bool shape_runs_in_fp8(const ModelConfig& config, std::span<const std::int64_t> shape);
// Rows that share scales in memory: a block's, or those of a smaller group.
std::int64_t rows_of_scale(std::span<const std::int64_t> shape);

Fp8Matrix allocate_fp8(const std::vector<std::int64_t>& shape);
Buffer<bf16_t> decoded(const Fp8Matrix& matrix, const as_threads* threads);

// Scales as published, [ceil(rows/128), ceil(columns/128)], from and to those in memory, where a
// row of them belongs to `span` rows of the matrix.
void hold_scales(std::span<const float> published, std::int64_t rows, std::int64_t columns,
                 std::int64_t span, float* held);
std::vector<float> published_scales(const float* held, std::int64_t rows, std::int64_t columns,
                                    std::int64_t span);
std::vector<float> scale_values(const Fp8Blocks& blocks);

// Quantises a projection in bf16 that is to run in FP8, by encode_fp8_blocks().
void quantise_projection(const ModelConfig& config, Weight& weight, const as_threads* threads);

}  // namespace attnscope
