#include "engine/model/fp8_projections.h"

#include <algorithm>

#include "kernels/cpu/codec.h"

namespace attnscope {
bool runs_in_fp8(const ModelConfig& config, std::int64_t rows, std::int64_t columns) {
  return config.switches.fp8_projections && rows % kScaleBlock == 0 && columns % kScaleBlock == 0;
}

Fp8Matrix allocate_fp8(std::int64_t rows, std::int64_t columns) {
  return {Buffer<std::uint8_t>({rows, columns}),
          Buffer<float>({scale_blocks(rows), scale_blocks(columns)})};
}

void store_fp8(const Fp8Blocks& blocks, std::uint8_t* codes, float* scales) {
  std::copy(blocks.codes.begin(), blocks.codes.end(), codes);
  std::transform(blocks.scales.begin(), blocks.scales.end(), scales, cpu::ue8m0_to_float);
}

Buffer<bf16_t> decoded(const Fp8Matrix& matrix, const as_threads* threads) {
  Buffer<bf16_t> out(matrix.codes.shape());
  const std::vector<double> scales(matrix.scales.data(),
                                   matrix.scales.data() + matrix.scales.size());
  decode_fp8_blocks(matrix.codes.data(), scales, out.shape()[0], out.shape()[1], out.data(),
                    threads);
  return out;
}

void quantise_projection(const ModelConfig& config, Weight& weight, const as_threads* threads) {
  if (weight.bf16.shape().size() != 2) return;
  const std::int64_t rows = weight.bf16.shape()[0], columns = weight.bf16.shape()[1];
  if (!runs_in_fp8(config, rows, columns)) return;
  const Fp8Blocks blocks = encode_fp8_blocks(weight.bf16.data(), rows, columns, threads);
  weight.fp8 = allocate_fp8(rows, columns);
  store_fp8(blocks, weight.fp8.codes.data(), weight.fp8.scales.data());
  weight.bf16 = Buffer<bf16_t>();
}

}  // namespace attnscope
