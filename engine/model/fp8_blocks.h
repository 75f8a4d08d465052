// Matrices in FP8 e4m3 with one scale per block of 128 x 128, the last blocks of a row or column
// being smaller: how published checkpoints hold their large projections.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/params/lane.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {

inline constexpr std::int64_t kScaleBlock = 128;

constexpr std::int64_t scale_blocks(std::int64_t n) { return (n + kScaleBlock - 1) / kScaleBlock; }

// [rows, columns] codes with scales [blocks of rows, blocks of columns] -> bf16, each value rounded
// once. `scales` are the values, not bytes. Returns how many values were not representable.
std::int64_t decode_fp8_blocks(const std::uint8_t* codes, const std::vector<double>& scales,
                               std::int64_t rows, std::int64_t columns, bf16_t* out,
                               const as_threads* threads);

struct Fp8Blocks {
  std::vector<std::uint8_t> codes;   // [rows, columns]
  std::vector<std::uint8_t> scales;  // UE8M0 bytes
  std::int64_t changed = 0;          // values that are others after decoding
};

// Scale 2^ceil(log2(largest / 448)), so that nothing saturates; codes to nearest even. What came
// from such blocks keeps its values.
Fp8Blocks encode_fp8_blocks(const bf16_t* values, std::int64_t rows, std::int64_t columns,
                            const as_threads* threads);

}  // namespace attnscope
