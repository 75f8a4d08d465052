#include "engine/checkpoint/weight_slots.h"

#include <fmt/format.h>

#include <functional>
#include <numeric>

#include "engine/model/fp8_projections.h"

namespace attnscope {
namespace {

std::int64_t compressor_width(int ratio, std::int64_t dim) { return (ratio == 4 ? 2 : 1) * dim; }

CompressorWeights allocate_compressor(const ModelConfig& config, int ratio, std::int64_t dim) {
  const std::int64_t width = compressor_width(ratio, dim);
  CompressorWeights c;
  c.kv_gate = Buffer<bf16_t>({2 * width, config.hidden});
  c.ape = Buffer<float>({ratio, width});
  c.norm = Buffer<bf16_t>({dim});
  return c;
}

// In the format that the switches ask for.
void allocate_projection(const ModelConfig& config, std::int64_t rows, std::int64_t columns,
                         Buffer<bf16_t>& bf16, Fp8Matrix& fp8) {
  if (runs_in_fp8(config, rows, columns)) {
    fp8 = allocate_fp8(rows, columns);
  } else {
    bf16 = Buffer<bf16_t>({rows, columns});
  }
}

LayerWeights allocate_layer(const ModelConfig& c, int i) {
  const std::int64_t hidden = c.hidden, q_lora = c.q_lora, groups = c.o_groups;
  LayerWeights w;
  w.attn_norm = Buffer<bf16_t>({hidden});
  allocate_projection(c, q_lora + c.head_dim, hidden, w.wq_kv_a, w.fp8.wq_kv_a);
  w.q_norm = Buffer<bf16_t>({q_lora});
  w.kv_norm = Buffer<bf16_t>({c.head_dim});
  allocate_projection(c, c.heads * c.head_dim, q_lora, w.wq_b, w.fp8.wq_b);
  w.sinks = Buffer<float>({c.heads});
  w.wo_a = Buffer<bf16_t>({groups, c.o_lora, c.heads_per_group() * c.head_dim});
  allocate_projection(c, hidden, groups * c.o_lora, w.wo_b, w.fp8.wo_b);
  if (c.ratio(i) > 0) w.compressor = allocate_compressor(c, c.ratio(i), c.head_dim);
  if (c.type(i) == LayerType::kC4A) {
    w.indexer_compressor = allocate_compressor(c, c.ratio(i), c.index_dim);
    allocate_projection(c, std::int64_t{c.index_heads} * c.index_dim, q_lora, w.indexer_wq_b,
                        w.fp8.indexer_wq_b);
    w.indexer_weights_proj = Buffer<bf16_t>({c.index_heads, hidden});
  }
  return w;
}

class Lister {
 public:
  Lister(const ModelConfig& config, const Weights& weights) : config_(config), weights_(weights) {}

  std::vector<WeightSlot> list() {
    add("embed.weight", {kVocabulary, config_.hidden}, weights_.embedding.data());
    add("norm.weight", {config_.hidden}, weights_.final_norm.data());
    for (int i = 0; i < config_.num_layers(); ++i) layer(i);
    return std::move(slots_);
  }

 private:
  void add(const std::string& name, std::vector<std::int64_t> shape, bf16_t* data,
           bool in_blocks = false) {
    slots_.push_back({name, std::move(shape), data, nullptr, nullptr, nullptr, in_blocks, layer_});
  }
  void add(const std::string& name, std::vector<std::int64_t> shape, float* data) {
    slots_.push_back({name, std::move(shape), nullptr, data, nullptr, nullptr, false, layer_});
  }
  // Rows [first, first + shape[0]) of a projection.
  void add(const std::string& name, std::vector<std::int64_t> shape, const Buffer<bf16_t>& bf16,
           const Fp8Matrix& fp8, std::int64_t first = 0) {
    const std::int64_t columns = shape[1];
    if (fp8.codes.size() == 0) return add(name, shape, bf16.data() + first * columns, true);
    slots_.push_back({name, std::move(shape), nullptr, nullptr, fp8.codes.data() + first * columns,
                      fp8.scales.data() + scale_blocks(first) * scale_blocks(columns), true,
                      layer_});
  }

  void compressor(const std::string& prefix, const CompressorWeights& w, int ratio,
                  std::int64_t dim) {
    const std::int64_t width = compressor_width(ratio, dim), hidden = config_.hidden;
    add(prefix + "wkv.weight", {width, hidden}, w.kv_gate.data());
    add(prefix + "wgate.weight", {width, hidden}, w.kv_gate.data() + width * hidden);
    add(prefix + "ape", {ratio, width}, w.ape.data());
    add(prefix + "norm.weight", {dim}, w.norm.data());
  }

  void layer(int i) {
    const LayerWeights& w = weights_.layers[static_cast<std::size_t>(i)];
    const std::int64_t hidden = config_.hidden, q_lora = config_.q_lora;
    const std::int64_t out = std::int64_t{config_.o_groups} * config_.o_lora;
    layer_ = config_.layers[static_cast<std::size_t>(i)];
    const std::string prefix = fmt::format("layers.{}.", layer_), p = prefix + "attn.";
    add(prefix + "attn_norm.weight", {hidden}, w.attn_norm.data());
    add(p + "wq_a.weight", {q_lora, hidden}, w.wq_kv_a, w.fp8.wq_kv_a);
    add(p + "wkv.weight", {config_.head_dim, hidden}, w.wq_kv_a, w.fp8.wq_kv_a, q_lora);
    add(p + "q_norm.weight", {q_lora}, w.q_norm.data());
    add(p + "kv_norm.weight", {config_.head_dim}, w.kv_norm.data());
    add(p + "wq_b.weight", {config_.heads * config_.head_dim, q_lora}, w.wq_b, w.fp8.wq_b);
    add(p + "attn_sink", {config_.heads}, w.sinks.data());
    add(p + "wo_a.weight", {out, config_.heads_per_group() * config_.head_dim}, w.wo_a.data(),
        true);
    add(p + "wo_b.weight", {hidden, out}, w.wo_b, w.fp8.wo_b);
    const int ratio = config_.ratio(i);
    if (ratio > 0) compressor(p + "compressor.", w.compressor, ratio, config_.head_dim);
    if (config_.type(i) != LayerType::kC4A) return;
    compressor(p + "indexer.compressor.", w.indexer_compressor, ratio, config_.index_dim);
    add(p + "indexer.wq_b.weight", {std::int64_t{config_.index_heads} * config_.index_dim, q_lora},
        w.indexer_wq_b, w.fp8.indexer_wq_b);
    add(p + "indexer.weights_proj.weight", {config_.index_heads, hidden},
        w.indexer_weights_proj.data());
  }

  const ModelConfig& config_;
  const Weights& weights_;
  int layer_ = -1;
  std::vector<WeightSlot> slots_;
};

}  // namespace

std::int64_t WeightSlot::size() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

Weights allocate_weights(const ModelConfig& config) {
  Weights w;
  w.embedding = Buffer<bf16_t>({kVocabulary, config.hidden});
  w.final_norm = Buffer<bf16_t>({config.hidden});
  for (int i = 0; i < config.num_layers(); ++i) w.layers.push_back(allocate_layer(config, i));
  return w;
}

std::vector<WeightSlot> weight_slots(const ModelConfig& config, const Weights& weights) {
  return Lister(config, weights).list();
}

}  // namespace attnscope
