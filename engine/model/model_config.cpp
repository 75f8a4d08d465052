#include "engine/model/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/model/config_keys.h"

namespace attnscope {
namespace {

constexpr int kRatioC4 = 4;
constexpr int kRatioC128 = 128;

// Entries `first` for layers 0 and 1, then 4, 128, 4, ..: the published pattern.
std::vector<int> published_ratios(int num_layers, int first) {
  std::vector<int> ratios(static_cast<std::size_t>(num_layers));
  for (int i = 0; i < num_layers; ++i) {
    ratios[static_cast<std::size_t>(i)] = i < 2 ? first : i % 2 == 0 ? kRatioC4 : kRatioC128;
  }
  return ratios;
}

ModelConfig v4_flash() {
  ModelConfig c;
  c.name = "v4-flash";
  c.hidden = 4096;
  c.heads = 64;
  c.q_lora = 1024;
  c.o_lora = 1024;
  c.o_groups = 8;
  c.index_topk = 512;
  c.compress_ratios = published_ratios(43, 0);
  return c;
}

ModelConfig v4_pro() {
  ModelConfig c;
  c.name = "v4-pro";
  c.hidden = 7168;
  c.heads = 128;
  c.q_lora = 1536;
  c.o_lora = 1024;
  c.o_groups = 16;
  c.index_topk = 1024;
  c.compress_ratios = published_ratios(61, kRatioC128);
  return c;
}

// Every byte layout as in V4, small enough to step quickly.
ModelConfig tiny() {
  ModelConfig c;
  c.name = "tiny";
  c.hidden = 512;
  c.heads = 8;
  c.q_lora = 128;
  c.o_lora = 64;
  c.o_groups = 2;
  c.index_heads = 8;
  c.compress_ratios = {0, kRatioC4, kRatioC128, kRatioC4};
  return c;
}

// Values of one compressor: [W_kv | W_gate], ape, norm.
std::int64_t compressor_parameters(std::int64_t hidden, std::int64_t ratio, std::int64_t dim) {
  const std::int64_t coff = ratio == kRatioC4 ? 2 : 1;
  return 2 * coff * dim * hidden + ratio * coff * dim + dim;
}

}  // namespace

const char* layer_type_name(LayerType type) {
  switch (type) {
    case LayerType::kSwa:
      return "SWA";
    case LayerType::kC4A:
      return "C4A";
    case LayerType::kC128A:
      return "C128A";
  }
  return "?";
}

LayerType ModelConfig::type(int i) const {
  const int r = ratio(i);
  return r == kRatioC4 ? LayerType::kC4A : r == kRatioC128 ? LayerType::kC128A : LayerType::kSwa;
}

std::int64_t ModelConfig::parameter_count() const {
  const std::int64_t x = hidden;
  const std::int64_t attention_out = std::int64_t{heads} * head_dim;
  std::int64_t total = kVocabulary * x + x;  // embedding and final norm
  for (int i = 0; i < num_layers(); ++i) {
    total += x;                                      // attn_norm
    total += (std::int64_t{q_lora} + head_dim) * x;  // wq_a over wkv
    total += q_lora + head_dim;                      // q_norm, kv_norm
    total += attention_out * q_lora + heads;         // wq_b, sinks
    total += attention_out * o_lora;                 // wo_a: o_groups blocks
    total += x * o_groups * o_lora;                  // wo_b
    if (ratio(i) > 0) total += compressor_parameters(x, ratio(i), head_dim);
    if (type(i) == LayerType::kC4A) {
      total += compressor_parameters(x, kRatioC4, index_dim);
      total += std::int64_t{index_heads} * index_dim * q_lora + index_heads * x;
    }
  }
  return total;
}

as_rope ModelConfig::rope(int i) const {
  const bool compressed = ratio(i) > 0;
  as_rope rope{};
  rope.base = compressed ? compress_rope_theta : rope_theta;
  rope.factor = compressed || switches.ratio0_yarn ? yarn_factor : 1.0;
  rope.original_max_pos = yarn_original_max;
  rope.beta_fast = yarn_beta_fast;
  rope.beta_slow = yarn_beta_slow;
  rope.table.reserved = switches.rope_frequencies;
  return rope;
}

std::vector<std::string> preset_names() { return {"tiny", "v4-flash", "v4-pro"}; }

Result<void> select_layers(ModelConfig& config, const std::vector<int>& layers) {
  const int count = static_cast<int>(config.compress_ratios.size());
  std::vector<int> chosen = layers;
  if (chosen.empty()) {
    for (int i = 0; i < count; ++i) chosen.push_back(i);
  }
  std::sort(chosen.begin(), chosen.end());
  for (std::size_t k = 0; k < chosen.size(); ++k) {
    if (chosen[k] < 0 || chosen[k] >= count) {
      return bad_input(fmt::format("{} has no layer {}", config.name, chosen[k]),
                       fmt::format("allowed: 0 to {}", count - 1));
    }
    if (k > 0 && chosen[k] == chosen[k - 1]) {
      return bad_input(
          fmt::format("layer {} is listed twice", chosen[k]),
          fmt::format("list each layer of {} once, from 0 to {}", config.name, count - 1));
    }
  }
  config.layers = std::move(chosen);
  return {};
}

Result<ModelConfig> preset(std::string_view name, const std::vector<int>& layers) {
  ModelConfig config;
  if (name == "tiny") {
    config = tiny();
  } else if (name == "v4-flash") {
    config = v4_flash();
  } else if (name == "v4-pro") {
    config = v4_pro();
  } else {
    return bad_input(fmt::format("unknown preset \"{}\"", name),
                     fmt::format("allowed: {}", fmt::join(preset_names(), ", ")));
  }
  if (Result<void> chosen = select_layers(config, layers); !chosen) return chosen.error();
  return config;
}

}  // namespace attnscope
