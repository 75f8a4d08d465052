#include "engine/model/fp8_projections.h"

#include <algorithm>

#include "kernels/cpu/codec.h"

namespace attnscope {

bool runs_in_fp8(const ModelConfig& config, std::int64_t rows, std::int64_t columns) {
  return config.switches.fp8_projections && rows % kScaleBlock == 0 && columns % kScaleBlock == 0;
}

bool groups_run_in_fp8(const ModelConfig& config, std::int64_t rows, std::int64_t columns) {
  return config.switches.fp8_projections && !config.switches.bf16_wo_a &&
         columns % kScaleBlock == 0 && (rows % kScaleBlock == 0 || kScaleBlock % rows == 0);
}

bool shape_runs_in_fp8(const ModelConfig& config, std::span<const std::int64_t> shape) {
  return shape.size() == 3 ? groups_run_in_fp8(config, shape[1], shape[2])
                           : shape.size() == 2 && runs_in_fp8(config, shape[0], shape[1]);
}

std::int64_t rows_of_scale(std::span<const std::int64_t> shape) {
  return shape.size() == 3 ? std::min(kScaleBlock, shape[1]) : kScaleBlock;
}

Fp8Matrix allocate_fp8(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> scales = shape;
  for (std::size_t side = shape.size() - 2; side < shape.size(); ++side) {
    scales[side] = scale_blocks(shape[side]);
  }
  return {Buffer<std::uint8_t>(shape), Buffer<float>(scales)};
}

void hold_scales(std::span<const float> published, std::int64_t rows, std::int64_t columns,
                 std::int64_t span, float* held) {
  const std::int64_t across = scale_blocks(columns);
  for (std::int64_t first = 0; first < rows; first += span, held += across) {
    std::copy_n(published.data() + first / kScaleBlock * across, across, held);
  }
}

std::vector<float> published_scales(const float* held, std::int64_t rows, std::int64_t columns,
                                    std::int64_t span) {
  const std::int64_t across = scale_blocks(columns);
  std::vector<float> out;
  for (std::int64_t first = 0; first < rows; first += kScaleBlock) {
    const float* row = held + first / span * across;
    out.insert(out.end(), row, row + across);
  }
  return out;
}

std::vector<float> scale_values(const Fp8Blocks& blocks) {
  std::vector<float> out;
  std::ranges::transform(blocks.scales, std::back_inserter(out), cpu::ue8m0_to_float);
  return out;
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
  const std::vector<std::int64_t> shape = weight.bf16.shape();
  if (!shape_runs_in_fp8(config, shape)) return;
  const std::int64_t columns = shape.back(), rows = weight.bf16.size() / columns;
  const Fp8Blocks blocks = encode_fp8_blocks(weight.bf16.data(), rows, columns, threads);
  weight.fp8 = allocate_fp8(shape);
  std::ranges::copy(blocks.codes, weight.fp8.codes.data());
  hold_scales(scale_values(blocks), rows, columns, rows_of_scale(shape), weight.fp8.scales.data());
  weight.bf16 = Buffer<bf16_t>();
}

}  // namespace attnscope
