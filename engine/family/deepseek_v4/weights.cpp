// The weights of DeepSeek-V4 and the values of synthetic ones, which keep attention in realistic
// ranges.
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
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "engine/family/deepseek_v4/deepseek_v4.h"
#include "engine/family/deepseek_v4/weight_scales.h"

namespace attnscope {
namespace {

using Sides = std::vector<std::int64_t>;
using Kind = WeightFill::Kind;

double fan(double gain, std::int64_t fan_in) {
  return gain / std::sqrt(static_cast<double>(fan_in));
}

// Of one layer, or of what is around the layers. Tensors are named by the published layer, so that
// a layer has the same values in every subset.
class WeightsOfV4 {
 public:
  explicit WeightsOfV4(const ModelConfig& config) : config_(config) {}

  std::vector<WeightSpec> around() {
    const std::int64_t hidden = config_.hidden;
    one("embedding", "embed", {config_.vocabulary, hidden}, fan(scales_.embedding_gain, hidden));
    norm("final_norm", "norm", hidden, 1.0);
    return std::move(specs_);
  }

  std::vector<WeightSpec> layer(int i) {
    const bool drafts = config_.is_draft(i);
    prefix_ = drafts ? fmt::format("mtp.{}.", i - config_.main_layers())
                     : fmt::format("layers.{}.", config_.layers[static_cast<std::size_t>(i)]);
    const std::int64_t hidden = config_.hidden, q_lora = config_.q_lora, dim = config_.head_dim;
    if (drafts) draft_input();
    const std::int64_t group_in = std::int64_t{config_.heads_per_group()} * dim;
    const std::int64_t groups = config_.o_groups, out_in = groups * config_.o_lora;
    const double latent_gain = scales_.latent_gain * config_.logit_gain;
    norm("attn_norm", "attn_norm", hidden, 1.0);
    // The key of its values has been this one since before it had a place in the file.
    specs_.back().parts.front().fill.key = prefix_ + "attn.attn_norm";
    if (drafts) norm("draft.norm", "norm", hidden, 1.0);
    prefix_ += "attn.";
    projection("wq_kv_a", {q_lora + dim, hidden},
               {part("wq_a", {q_lora, hidden}, fan(1.0, hidden)),
                part("wkv", {dim, hidden}, fan(1.0, hidden))});
    norm("q_norm", "q_norm", q_lora, 1.0);
    norm("kv_norm", "kv_norm", dim, latent_gain);
    const Sides up = {config_.heads * dim, q_lora};
    projection("wq_b", up, {part("wq_b", up, fan(1.0, q_lora))});
    sinks(i);
    projection("wo_a", {groups, config_.o_lora, group_in},
               {part("wo_a", {out_in, group_in}, fan(1.0, group_in))});
    const Sides down = {hidden, out_in};
    projection("wo_b", down, {part("wo_b", down, fan(scales_.output_gain, out_in))});
    const int ratio = config_.ratio(i);
    if (ratio > 0) compressor("compressor.", ratio, dim, latent_gain);
    if (type_of_layer(config_, i) == LayerType::kC4A) indexer(ratio);
    return std::move(specs_);
  }

 private:
  WeightPart part(const std::string& label, Sides shape, double scale, double offset = 0,
                  Kind kind = Kind::kNormal) const {
    const char* ending = kind == Kind::kNormal ? ".weight" : "";
    return {
        prefix_ + label + ending, label, std::move(shape), {kind, prefix_ + label, scale, offset}};
  }

  WeightSpec& add(const char* name, Sides shape, std::vector<WeightPart> parts) {
    WeightSpec& spec = specs_.emplace_back();
    spec.name = name;
    spec.shape = std::move(shape);
    spec.parts = std::move(parts);
    return spec;
  }

  void one(const char* name, const std::string& label, const Sides& shape, double scale) {
    add(name, shape, {part(label, shape, scale)});
  }

  void projection(const char* name, Sides shape, std::vector<WeightPart> parts) {
    WeightSpec& spec = add(name, std::move(shape), std::move(parts));
    spec.in_blocks = spec.projection = true;
  }

  void norm(const char* name, const std::string& label, std::int64_t n, double gain) {
    add(name, {n}, {part(label, {n}, gain * scales_.norm_spread, gain)});
  }

  // What a draft layer begins with: halves of its input that are about as large.
  void draft_input() {
    const std::int64_t hidden = config_.hidden;
    const Sides square = {hidden, hidden};
    norm("draft.enorm", "enorm", hidden, 1.0);
    norm("draft.hnorm", "hnorm", hidden, 1.0);
    projection("draft.e_proj", square, {part("e_proj", square, fan(1.0, hidden))});
    projection("draft.h_proj", square, {part("h_proj", square, fan(1.0, hidden))});
  }

  // Rows a token of a long request attends to in this layer.
  double typical_entries(int i) const {
    switch (type_of_layer(config_, i)) {
      case LayerType::kC4A:
        return config_.window + config_.index_topk;
      case LayerType::kC128A:
        return config_.window + scales_.c128_entries_typical;
      case LayerType::kSwa:
        break;
    }
    return config_.window;
  }

  void sinks(int i) {
    const double lse = std::log(typical_entries(i)) +
                       scales_.lse_share * scales_.latent_gain * scales_.latent_gain;
    add("sinks", {config_.heads},
        {part("attn_sink", {config_.heads}, scales_.sink_high - scales_.sink_low,
              lse + scales_.sink_low, Kind::kStrata)})
        .dtype = AS_F32;
  }

  // path: of the compressor of keys and values, or of index keys.
  void compressor(const std::string& path, std::int64_t ratio, std::int64_t dim, double norm_gain) {
    const bool of_index = path != "compressor.";
    const std::int64_t hidden = config_.hidden, width = (ratio == 4 ? 2 : 1) * dim;
    const double gate_gain = ratio == 4 ? scales_.gate_gain_c4 : scales_.gate_gain_c128;
    add(of_index ? "indexer.kv_gate" : "compressor.kv_gate", {2 * width, hidden},
        {part(path + "wkv", {width, hidden}, fan(1.0, hidden)),
         part(path + "wgate", {width, hidden}, fan(gate_gain, hidden))});
    add(of_index ? "indexer.ape" : "compressor.ape", {ratio, width},
        {part(path + "ape", {ratio, width}, scales_.ape_spread, 0, Kind::kUniform)})
        .dtype = AS_F32;
    norm(of_index ? "indexer.norm" : "compressor.norm", path + "norm", dim, norm_gain);
  }

  void indexer(int ratio) {
    const std::int64_t heads = config_.index_heads, q_lora = config_.q_lora;
    compressor("indexer.compressor.", ratio, config_.index_dim, scales_.index_gain);
    const Sides up = {heads * config_.index_dim, q_lora};
    projection("indexer.wq_b", up, {part("indexer.wq_b", up, fan(1.0, q_lora))});
    one("indexer.weights_proj", "indexer.weights_proj", {heads, config_.hidden},
        fan(1.0, config_.hidden));
  }

  const ModelConfig& config_;
  WeightScales scales_;
  std::string prefix_;
  std::vector<WeightSpec> specs_;
};

}  // namespace

ModelWeights deepseek_v4_weights(const ModelConfig& config) {
  ModelWeights weights;
  weights.around = WeightsOfV4(config).around();
  for (int i = 0; i < config.num_layers(); ++i) {
    weights.layers.push_back(WeightsOfV4(config).layer(i));
  }
  return weights;
}

}  // namespace attnscope
