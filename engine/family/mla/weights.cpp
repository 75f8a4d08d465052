// The weights of absorbed MLA, by the names of Hugging Face, and the values of synthetic ones.
//
//   matrices     N(0, 1/fan_in): a unit-rms input gives a unit-rms output.
//   norms        1 + 0.1 N; of low-rank queries 1.2 times that over the square of mscale: keys have
//                unit rms, so logits of unrelated rows have a standard deviation of 1.2, a softmax
//                that prefers some rows and still mixes. Much more, and which of two tokens with
//                all but equal scores is selected decides what a layer gives.
//   index keys   LayerNorm of 1 + 0.1 N with a bias of 0.1 N; head weights of both signs.
//   embedding, o_proj: as in the other families, so that the hidden state is attention output by
//                far and greedy decoding does not repeat the last byte.
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "engine/family/mla/mla.h"
#include "kernels/params/mla_params.h"

namespace attnscope {
namespace {

using MlaAxes = std::vector<std::int64_t>;

constexpr double kMlaNormSpread = 0.1, kMlaLogitSpread = 1.2;
constexpr double kMlaEmbeddingGain = 0.5, kMlaOutputGain = 2.0;

double mla_fan(double gain, std::int64_t fan_in) {
  return gain / std::sqrt(static_cast<double>(fan_in));
}

// Of one layer, or of what is around the layers. Tensors are named by the published layer, so that
// a layer has the same values in every subset.
class WeightsOfMla {
 public:
  explicit WeightsOfMla(const ModelConfig& config) : config_(config) {}

  std::vector<WeightSpec> around() {
    const std::int64_t hidden = config_.hidden;
    const MlaAxes head = {config_.vocabulary, hidden};
    const double scale = mla_fan(kMlaEmbeddingGain, hidden);
    add("embedding", head, {part("model.embed_tokens", ".weight", head, scale)});
    norm("final_norm", "model.norm", hidden, 1);
    if (!config_.mla.tied) add("lm_head", head, {part("lm_head", ".weight", head, scale)});
    return std::move(specs_);
  }

  std::vector<WeightSpec> layer(int i) {
    const int published = config_.layers[static_cast<std::size_t>(i)];
    const std::string prefix = fmt::format("model.layers.{}.", published);
    const std::string p = prefix + "self_attn.";
    const MlaAttention& m = config_.mla;
    const std::int64_t hidden = config_.hidden, q_lora = config_.q_lora, heads = config_.heads;
    const std::int64_t q = heads * (m.nope_dim + config_.rope_dim);
    const std::int64_t each = m.nope_dim + m.value_dim, values = heads * m.value_dim;
    norm("attn_norm", prefix + "input_layernorm", hidden, 1);
    add("q_kv_a", {q_lora + AS_MLA_WIDTH, hidden},
        {part(p + "q_a_proj", ".weight", {q_lora, hidden}, mla_fan(1, hidden)),
         part(p + "kv_a_proj_with_mqa", ".weight", {AS_MLA_WIDTH, hidden}, mla_fan(1, hidden))})
        .in_blocks = true;
    // What mscale makes of the scale of scores.
    const double sharper = mla_scale(config_) * std::sqrt(m.nope_dim + config_.rope_dim);
    norm("q_norm", p + "q_a_layernorm", q_lora, kMlaLogitSpread * config_.logit_gain / sharper);
    norm("kv_norm", p + "kv_a_layernorm", AS_MLA_LATENT, 1);
    matrix("q_b", p + "q_b_proj", {q, q_lora}, 1);
    add("kv_b", {heads, each, AS_MLA_LATENT},
        {part(p + "kv_b_proj", ".weight", {heads * each, AS_MLA_LATENT},
              mla_fan(1, AS_MLA_LATENT))})
        .in_blocks = true;
    matrix("o_proj", p + "o_proj", {hidden, values}, kMlaOutputGain);
    if (mla_selects(config_, i)) indexer(p + "indexer.");
    return std::move(specs_);
  }

 private:
  static WeightPart part(const std::string& key, const char* ending, MlaAxes shape, double scale,
                         double offset = 0) {
    WeightFill fill{WeightFill::Kind::kNormal, key, scale, offset};
    return {key + ending, key.substr(key.rfind('.') + 1), std::move(shape), std::move(fill)};
  }

  WeightSpec& add(const char* name, MlaAxes shape, std::vector<WeightPart> parts) {
    WeightSpec& spec = specs_.emplace_back();
    spec.name = name;
    spec.shape = std::move(shape);
    spec.parts = std::move(parts);
    return spec;
  }

  void matrix(const char* name, const std::string& key, const MlaAxes& shape, double gain) {
    add(name, shape, {part(key, ".weight", shape, mla_fan(gain, shape[1]))}).in_blocks = true;
  }

  void norm(const char* name, const std::string& key, std::int64_t n, double gain) {
    add(name, {n}, {part(key, ".weight", {n}, gain * kMlaNormSpread, gain)});
  }

  void indexer(const std::string& p) {
    const std::int64_t heads = config_.index_heads, dim = config_.index_dim;
    const std::int64_t hidden = config_.hidden;
    matrix("indexer.wq_b", p + "wq_b", {heads * dim, config_.q_lora}, 1);
    matrix("indexer.wk", p + "wk", {dim, hidden}, 1);
    norm("indexer.k_norm", p + "k_norm", dim, 1);
    WeightPart bias = part(p + "k_norm", ".bias", {dim}, kMlaNormSpread);
    bias.label = "k_norm.bias";
    bias.fill.key += ".bias";
    add("indexer.k_bias", {dim}, {std::move(bias)});
    const MlaAxes weights = {heads, hidden};
    add("indexer.weights_proj", weights,
        {part(p + "weights_proj", ".weight", weights, mla_fan(1, hidden))});
  }

  const ModelConfig& config_;
  std::vector<WeightSpec> specs_;
};

}  // namespace

ModelWeights mla_weights(const ModelConfig& config) {
  ModelWeights weights;
  weights.around = WeightsOfMla(config).around();
  for (int i = 0; i < config.num_layers(); ++i) {
    weights.layers.push_back(WeightsOfMla(config).layer(i));
  }
  return weights;
}

// Files say model.layers.2.self_attn.q_a_proj.weight, and of FP8 weights weight_scale_inv; those of
// a bare module layers.2....
std::string mla_published_name(std::string_view name) {
  std::string_view rest = name;
  for (const std::string_view prefix : {"language_model.", "model."}) {
    if (rest.starts_with(prefix)) rest.remove_prefix(prefix.size());
  }
  const bool inner =
      rest.starts_with("layers.") || rest == "embed_tokens.weight" || rest == "norm.weight";
  std::string published = inner                      ? "model." + std::string(rest)
                          : rest == "lm_head.weight" ? std::string(rest)
                                                     : std::string(name);
  for (const std::string_view ending : {".weight_scale_inv", ".weight_scale"}) {
    if (!published.ends_with(ending)) continue;
    return published.substr(0, published.size() - ending.size()) + ".scale";
  }
  return published;
}

}  // namespace attnscope
