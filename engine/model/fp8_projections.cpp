#include "engine/model/fp8_projections.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/cpu/codec.h"

namespace attnscope {
namespace {

struct Projection {
  const char* name;  // as published
  std::int64_t rows, columns;
};

// Of the i-th layer that runs.
std::vector<Projection> projections(const ModelConfig& c, int i) {
  std::vector<Projection> all = {
      {"wq_a over wkv", std::int64_t{c.q_lora} + c.head_dim, c.hidden},
      {"wq_b", std::int64_t{c.heads} * c.head_dim, c.q_lora},
      {"wo_b", c.hidden, std::int64_t{c.o_groups} * c.o_lora},
  };
  if (c.type(i) == LayerType::kC4A) {
    all.push_back({"indexer.wq_b", std::int64_t{c.index_heads} * c.index_dim, c.q_lora});
  }
  return all;
}

void quantise(const ModelConfig& config, Buffer<bf16_t>& from, Fp8Matrix& to,
              const as_threads* threads) {
  if (from.size() == 0) return;
  const std::int64_t rows = from.shape()[0], columns = from.shape()[1];
  if (!runs_in_fp8(config, rows, columns)) return;
  const Fp8Blocks blocks = encode_fp8_blocks(from.data(), rows, columns, threads);
  to = allocate_fp8(rows, columns);
  store_fp8(blocks, to.codes.data(), to.scales.data());
  from = Buffer<bf16_t>();
}

}  // namespace

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

void quantise_projections(const ModelConfig& config, Weights& weights, const as_threads* threads) {
  for (LayerWeights& w : weights.layers) {
    quantise(config, w.wq_kv_a, w.fp8.wq_kv_a, threads);
    quantise(config, w.wq_b, w.fp8.wq_b, threads);
    quantise(config, w.wo_b, w.fp8.wo_b, threads);
    quantise(config, w.indexer_wq_b, w.fp8.indexer_wq_b, threads);
  }
}

std::vector<std::string> projections_left_in_bf16(const ModelConfig& config) {
  std::vector<std::string> names;
  if (!config.switches.fp8_projections) return names;
  for (int i = 0; i < config.num_layers(); ++i) {
    for (const Projection& p : projections(config, i)) {
      if (runs_in_fp8(config, p.rows, p.columns)) continue;
      std::string name = fmt::format("{} [{}, {}]", p.name, p.rows, p.columns);
      if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
    }
  }
  return names;
}

std::int64_t weight_bytes(const ModelConfig& config) {
  std::int64_t bytes = 2 * config.parameter_count();
  for (int i = 0; i < config.num_layers(); ++i) {
    for (const Projection& p : projections(config, i)) {
      if (!runs_in_fp8(config, p.rows, p.columns)) continue;
      bytes += 4 * scale_blocks(p.rows) * scale_blocks(p.columns) - p.rows * p.columns;
    }
  }
  return bytes;
}

}  // namespace attnscope
