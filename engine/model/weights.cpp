// Synthetic weights that keep attention in realistic ranges.
//
//   matrices        N(0, 1/fan_in): a unit-rms input gives a unit-rms output.
//   norms           gain * (1 + 0.1 N): near 1, but a kernel that forgets the weight shows.
//   kv_norm, compressor norm: gain 2.5. q has unit rms per head, so l = 512^-1/2 q . kv would have
//                   a standard deviation of 2.5 for unrelated rows. Rows of one text share a part,
//                   20 % of their energy after the first layer and half after the fourth, which
//                   leaves a deviation of 2.3 to 1.8: a softmax that prefers some rows and still
//                   mixes. Much less, and all positions drift towards one mean.
//   gates           standard deviation 1 over the 8 rows of a C4A window, ape +- 0.5: pooling is
//                   neither uniform nor one-hot. Over the 128 rows of C128A 1.5, as a flatter
//                   softmax would give nearly the same mean for every window.
//   indexer         unit keys and queries, head weights of both signs: scores are spread by about
//                   0.5 around 0, far above the spacing of fp32 and fp8 ties.
//   sinks           For logits N(0, s^2) over many rows lse is ln n + s^2 / 2; finite rows and the
//                   shared part take half of the second term. Sinks lie at lse - 4.6 .. lse + 2.2,
//                   one stratum a head, shuffled: the sink takes 1 % to 90 % of the mass across the
//                   heads of every layer, whatever the seed.
//   embedding, wo_b The head is the embedding. A token's own row adds hidden * e^2 to its own logit
//                   while the other 255 logits are spread by sqrt(hidden) * e * rms(h). With
//                   e = 0.5/sqrt(hidden) and layer outputs of rms 1 to 2 that is a sixth of the
//                   spread: the hidden state is attention output by far, and greedy decoding does
//                   not just repeat the last byte (with e four times as large it does).
#include "engine/model/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "engine/model/fp8_projections.h"
#include "engine/model/synthetic_fill.h"
#include "engine/model/weight_scales.h"

namespace attnscope {
namespace {

double fan(double gain, std::int64_t fan_in) {
  return gain / std::sqrt(static_cast<double>(fan_in));
}

class WeightsBuilder {
 public:
  WeightsBuilder(const ModelConfig& config, std::uint64_t seed)
      : config_(config), seed_(seed), queue_(seed) {}

  Weights build(const as_threads* threads) {
    Weights w;
    const std::int64_t hidden = config_.hidden;
    w.embedding = matrix({kVocabulary, hidden}, "embed", fan(scales_.embedding_gain, hidden));
    w.final_norm = norm(hidden, "norm", 1.0);
    w.layers.reserve(static_cast<std::size_t>(config_.num_layers()));
    for (int i = 0; i < config_.num_layers(); ++i) w.layers.push_back(layer(i));
    queue_.run(threads);
    if (config_.twin_tokens) {
      bf16_t* rows = w.embedding.data();
      std::copy_n(rows, kVocabulary / 2 * hidden, rows + kVocabulary / 2 * hidden);
    }
    return w;
  }

 private:
  Buffer<bf16_t> matrix(std::vector<std::int64_t> shape, const std::string& name, double scale) {
    Buffer<bf16_t> b(std::move(shape));
    queue_.normal(b.data(), b.size(), name, scale);
    return b;
  }

  Buffer<bf16_t> norm(std::int64_t n, const std::string& name, double gain) {
    Buffer<bf16_t> b({n});
    queue_.normal(b.data(), n, name, gain * scales_.norm_spread, gain);
    return b;
  }

  CompressorWeights compressor(const std::string& prefix, std::int64_t ratio, std::int64_t dim,
                               double norm_gain) {
    const std::int64_t width = (ratio == 4 ? 2 : 1) * dim;
    const double gate_gain = ratio == 4 ? scales_.gate_gain_c4 : scales_.gate_gain_c128;
    const std::int64_t hidden = config_.hidden;
    CompressorWeights c;
    c.kv_gate = Buffer<bf16_t>({2 * width, hidden});
    queue_.normal(c.kv_gate.data(), width * hidden, prefix + "wkv", fan(1.0, hidden));
    queue_.normal(c.kv_gate.data() + width * hidden, width * hidden, prefix + "wgate",
                  fan(gate_gain, hidden));
    c.ape = Buffer<float>({ratio, width});
    queue_.uniform(c.ape.data(), c.ape.size(), prefix + "ape", scales_.ape_spread);
    c.norm = norm(dim, prefix + "norm", norm_gain);
    return c;
  }

  // Rows a token of a long request attends to in this layer.
  double typical_entries(int i) const {
    switch (config_.type(i)) {
      case LayerType::kC4A:
        return config_.window + config_.index_topk;
      case LayerType::kC128A:
        return config_.window + scales_.c128_entries_typical;
      case LayerType::kSwa:
        break;
    }
    return config_.window;
  }

  Buffer<float> sinks(int i, const std::string& name) {
    const std::int64_t heads = config_.heads;
    const double lse = std::log(typical_entries(i)) +
                       scales_.lse_share * scales_.latent_gain * scales_.latent_gain;
    const double step = (scales_.sink_high - scales_.sink_low) /
                        static_cast<double>(std::max<std::int64_t>(heads - 1, 1));
    Buffer<float> b({heads});
    for (std::int64_t h = 0; h < heads; ++h) {
      b.data()[h] = static_cast<float>(lse + scales_.sink_low + step * static_cast<double>(h));
    }
    const std::uint64_t key = tensor_key(seed_, name);
    for (std::int64_t h = heads - 1; h > 0; --h) {
      const auto hash = element_hash(key, static_cast<std::uint64_t>(h));
      std::swap(b.data()[h], b.data()[hash % static_cast<std::uint64_t>(h + 1)]);
    }
    return b;
  }

  // Named by the published layer, so that a layer has the same weights in every subset.
  LayerWeights layer(int i) {
    const std::string p =
        fmt::format("layers.{}.attn.", config_.layers[static_cast<std::size_t>(i)]);
    const std::int64_t hidden = config_.hidden;
    const std::int64_t q_lora = config_.q_lora;
    const std::int64_t group_in = std::int64_t{config_.heads_per_group()} * config_.head_dim;
    const std::int64_t out_in = std::int64_t{config_.o_groups} * config_.o_lora;
    LayerWeights w;
    w.attn_norm = norm(hidden, p + "attn_norm", 1.0);
    w.wq_kv_a = Buffer<bf16_t>({q_lora + config_.head_dim, hidden});
    queue_.normal(w.wq_kv_a.data(), q_lora * hidden, p + "wq_a", fan(1.0, hidden));
    queue_.normal(w.wq_kv_a.data() + q_lora * hidden, config_.head_dim * hidden, p + "wkv",
                  fan(1.0, hidden));
    w.q_norm = norm(q_lora, p + "q_norm", 1.0);
    const double latent_gain = scales_.latent_gain * config_.logit_gain;
    w.kv_norm = norm(config_.head_dim, p + "kv_norm", latent_gain);
    w.wq_b = matrix({config_.heads * config_.head_dim, q_lora}, p + "wq_b", fan(1.0, q_lora));
    w.sinks = sinks(i, p + "attn_sink");
    w.wo_a = matrix({config_.o_groups, config_.o_lora, group_in}, p + "wo_a", fan(1.0, group_in));
    w.wo_b = matrix({hidden, out_in}, p + "wo_b", fan(scales_.output_gain, out_in));
    if (config_.ratio(i) > 0) {
      w.compressor = compressor(p + "compressor.", config_.ratio(i), config_.head_dim, latent_gain);
    }
    if (config_.type(i) == LayerType::kC4A) {
      w.indexer_compressor = compressor(p + "indexer.compressor.", config_.ratio(i),
                                        config_.index_dim, scales_.index_gain);
      w.indexer_wq_b = matrix({std::int64_t{config_.index_heads} * config_.index_dim, q_lora},
                              p + "indexer.wq_b", fan(1.0, q_lora));
      w.indexer_weights_proj =
          matrix({config_.index_heads, hidden}, p + "indexer.weights_proj", fan(1.0, hidden));
    }
    return w;
  }

  const ModelConfig& config_;
  std::uint64_t seed_;
  FillQueue queue_;
  WeightScales scales_;
};

template <class T>
std::int64_t bytes_of(const Buffer<T>& b) {
  return b.size() * static_cast<std::int64_t>(sizeof(T));
}

std::int64_t bytes_of(const CompressorWeights& c) {
  return bytes_of(c.kv_gate) + bytes_of(c.ape) + bytes_of(c.norm);
}

std::int64_t bytes_of(const Fp8Matrix& m) { return bytes_of(m.codes) + bytes_of(m.scales); }

}  // namespace

std::int64_t Weights::bytes() const {
  std::int64_t total = bytes_of(embedding) + bytes_of(final_norm);
  for (const LayerWeights& w : layers) {
    total += bytes_of(w.attn_norm) + bytes_of(w.wq_kv_a) + bytes_of(w.q_norm) +
             bytes_of(w.kv_norm) + bytes_of(w.wq_b) + bytes_of(w.sinks) + bytes_of(w.wo_a) +
             bytes_of(w.wo_b) + bytes_of(w.compressor) + bytes_of(w.indexer_compressor) +
             bytes_of(w.indexer_wq_b) + bytes_of(w.indexer_weights_proj) + bytes_of(w.fp8.wq_kv_a) +
             bytes_of(w.fp8.wq_b) + bytes_of(w.fp8.wo_b) + bytes_of(w.fp8.indexer_wq_b);
  }
  return total;
}

Weights synthetic_weights(const ModelConfig& config, std::uint64_t seed,
                          const as_threads* threads) {
  Weights weights = WeightsBuilder(config, seed).build(threads);
  shift_sinks(config, weights);
  quantise_projections(config, weights, threads);
  return weights;
}

void shift_sinks(const ModelConfig& config, Weights& weights) {
  if (config.sink_shift == 0) return;
  for (LayerWeights& layer : weights.layers) {
    for (std::int64_t h = 0; h < layer.sinks.size(); ++h) {
      layer.sinks.data()[h] += static_cast<float>(config.sink_shift);
    }
  }
}

}  // namespace attnscope
