// The weights of dense attention, by the names of Hugging Face, and the values of synthetic ones.
//
//   matrices   N(0, 1/fan_in): a unit-rms input gives a unit-rms output.
//   norms      1 + 0.1 N, or what is left of it where the op adds 1.
//   keys       gain 2.5, of k_norm where there is one, else of k_proj: logits of unrelated rows
//   have
//              a standard deviation of 2.5, a softmax that prefers some rows and still mixes.
//   slopes     of ALiBi: follow from the number of heads (dense_slopes); no file has them.
//   sinks      one stratum a head from 1 % to 90 % of the mass, shuffled.
//   scales     of quantised keys and values, beside the cache: what takes 6 deviations of them, a
//              quarter more or less, to the largest number of e4m3.
//   embedding, o_proj: as in the other families, so that the hidden state is attention output by
//              far and greedy decoding does not repeat the last byte.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/family/dense/dense.h"
#include "engine/family/dense/encoder_decoder.h"

namespace attnscope {
namespace {

using AxisSizes = std::vector<std::int64_t>;

constexpr double kDenseNormSpread = 0.1;
constexpr double kKeyGain = 2.5;
constexpr double kDenseEmbeddingGain = 0.5;
constexpr double kDenseOutputGain = 2.0;
constexpr double kSinkLow = -4.6, kSinkHigh = 2.2;  // above the usual lse
constexpr double kRowsTypical = 64;                 // of a full layer
constexpr double kScaleDeviations = 6, kLargestE4m3 = 448;

double fan_scale(double gain, std::int64_t fan_in) {
  return gain / std::sqrt(static_cast<double>(fan_in));
}

// Of one layer, or of what is around the layers. Tensors are named by the published layer, so that
// a layer has the same values in every subset.
class WeightsOfDense {
 public:
  explicit WeightsOfDense(const ModelConfig& config) : config_(config) {}

  std::vector<WeightSpec> around() {
    const std::int64_t hidden = config_.hidden;
    const AxisSizes head = {config_.vocabulary, hidden};
    const bool t5 = is_encoder_decoder(config_);
    matrix("embedding", t5 ? kT5Embedding : "model.embed_tokens", head,
           fan_scale(kDenseEmbeddingGain, hidden));
    norm("final_norm", t5 ? kT5Norm : "model.norm", hidden, 1);
    if (t5) {
      norm("memory_norm", kT5SourceNorm, hidden, 1);
      bias("encoder_bias", kSourceSide);
      bias("decoder_bias", kDecoderSide);
    }
    if (!config_.dense.tied) {
      matrix("lm_head", "lm_head", head, fan_scale(kDenseEmbeddingGain, hidden));
    }
    return std::move(specs_);
  }

  std::vector<WeightSpec> layer(int i) {
    const int published = config_.layers[static_cast<std::size_t>(i)];
    const std::string prefix = fmt::format("model.layers.{}.", published);
    const std::string attention = prefix + "self_attn.";
    const DenseNames names =
        is_encoder_decoder(config_)
            ? t5_names(config_, published)
            : DenseNames{prefix + "input_layernorm", attention + "q_proj", attention + "k_proj",
                         attention + "v_proj", attention + "o_proj"};
    const std::int64_t hidden = config_.hidden, dim = config_.head_dim;
    const std::int64_t q = config_.heads * dim, kv = config_.kv_heads * dim;
    const bool qk_norm = config_.dense.qk_norm;
    // What scores are multiplied with beyond head_dim^-0.5 is in the keys: in T5 all of it.
    const double scale =
        is_encoder_decoder(config_) ? 1 / std::sqrt(static_cast<double>(config_.head_dim)) : 1;
    const double key_gain = kKeyGain * config_.logit_gain * scale;
    norm("attn_norm", names.norm, hidden, 1);
    matrix("q_proj", names.q, {q, hidden}, fan_scale(1, hidden));
    const bool rows = dense_shares_with(config_, i) < 0;
    if (rows) {
      const double gain = qk_norm ? 1 : key_gain;
      matrix("k_proj", names.k, {kv, hidden}, fan_scale(gain, hidden));
      matrix("v_proj", names.v, {kv, hidden}, fan_scale(1, hidden));
    }
    if (qk_norm) norm("q_norm", attention + "q_norm", dim, 1);
    if (qk_norm && rows) norm("k_norm", attention + "k_norm", dim, key_gain);
    if (config_.dense.sinks)
      sinks(attention + "sinks", std::max(dense_window(config_, i), dense_chunk(config_, i)));
    if (config_.dense.alibi_bias_max > 0) slopes();
    if (rows && dense_scales_beside(config_) > 0) {
      cache_scale("k_scale", attention + "k_scale", key_gain);
      cache_scale("v_scale", attention + "v_scale", 1);
    }
    matrix("o_proj", names.o, {hidden, q}, fan_scale(kDenseOutputGain, q));
    return std::move(specs_);
  }

 private:
  WeightSpec& add(const char* name, const std::string& key, const char* ending,
                  const AxisSizes& shape, WeightFill fill) {
    WeightSpec& spec = specs_.emplace_back();
    spec.name = name;
    spec.shape = shape;
    fill.key = key;
    spec.parts.push_back({key + ending, name, shape, std::move(fill)});
    return spec;
  }

  void matrix(const char* name, const std::string& key, const AxisSizes& shape, double scale) {
    add(name, key, ".weight", shape, {WeightFill::Kind::kNormal, {}, scale, 0});
  }

  void norm(const char* name, const std::string& key, std::int64_t n, double gain) {
    const double offset = config_.dense.weight_plus_one ? gain - 1 : gain;
    add(name, key, ".weight", {n},
        {WeightFill::Kind::kNormal, {}, gain * kDenseNormSpread, offset});
  }

  // Of all layers of a side, up to three logits from bucket to bucket.
  void bias(const char* name, DenseSide side) {
    add(name, t5_bias(side), ".weight", {config_.dense.bias_buckets, config_.heads},
        {WeightFill::Kind::kUniform, {}, 1.5, 0})
        .dtype = AS_F32;
  }

  // Those of the rank's heads among all.
  void slopes() {
    const auto [size, rank] = config_.parallel;
    const auto all = dense_slopes(config_.heads * size, config_.dense.alibi_bias_max);
    WeightSpec& spec = specs_.emplace_back();
    spec.name = "alibi_slopes";
    spec.shape = {config_.heads};
    spec.dtype = AS_F32;
    const auto first = all.begin() + std::ptrdiff_t{config_.heads} * rank;
    spec.given.assign(first, first + config_.heads);
  }

  void cache_scale(const char* name, const std::string& key, double gain) {
    const double middle = kScaleDeviations * gain / kLargestE4m3;
    add(name, key, "", {dense_scales_beside(config_)},
        {WeightFill::Kind::kStrata, {}, middle / 2, 0.75 * middle})
        .dtype = AS_F32;
  }

  void sinks(const std::string& key, int seen) {
    const double rows = seen > 0 ? seen : kRowsTypical;
    const double lse = std::log(rows) + kKeyGain * kKeyGain / 4;
    add("sinks", key, "", {config_.heads},
        {WeightFill::Kind::kStrata, {}, kSinkHigh - kSinkLow, lse + kSinkLow})
        .dtype = AS_F32;
  }

  const ModelConfig& config_;
  std::vector<WeightSpec> specs_;
};

}  // namespace

ModelWeights dense_weights(const ModelConfig& config) {
  ModelWeights weights;
  weights.around = WeightsOfDense(config).around();
  for (int i = 0; i < config.num_layers(); ++i) {
    weights.layers.push_back(WeightsOfDense(config).layer(i));
  }
  return weights;
}

// Files say model.layers.2.self_attn.q_proj.weight; those of models with more than text
// language_model.model.layers.2..., those of a bare module layers.2.... The scales of a quantised
// cache are beside the attention, its inner module (attn) or the projection.
std::string dense_published_name(std::string_view name) {
  std::string_view rest = name;
  for (const std::string_view prefix : {"language_model.", "model."}) {
    if (rest.starts_with(prefix)) rest.remove_prefix(prefix.size());
  }
  for (const std::string_view scale : {"k_scale", "v_scale"}) {
    if (!rest.ends_with(scale)) continue;
    const std::string_view before = rest.substr(0, rest.size() - scale.size());
    for (const std::string_view module : {".attn.", ".k_proj.", ".v_proj."}) {
      if (!before.ends_with(module)) continue;
      return fmt::format("model.{}.{}", before.substr(0, before.size() - module.size()), scale);
    }
  }
  const bool inner =
      rest.starts_with("layers.") || rest == "embed_tokens.weight" || rest == "norm.weight";
  if (inner) return "model." + std::string(rest);
  return std::string(rest == "lm_head.weight" ? rest : name);
}

}  // namespace attnscope
