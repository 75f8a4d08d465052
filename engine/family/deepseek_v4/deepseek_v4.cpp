#include "engine/family/deepseek_v4/deepseek_v4.h"

#include "engine/family/deepseek_v4/caches.h"

namespace attnscope {

namespace {

// Heads with their rows of the query projection and their sinks, output groups with their wo_a and
// the columns of wo_b that these feed. Latent rows, compressors and the indexer are on every rank.
constexpr DealtNumber kDealt[] = {
    {"heads", &ModelConfig::heads},
    {"output groups", &ModelConfig::o_groups},
};

constexpr PublishedModel kV4Models[] = {{"DeepseekV4ForCausalLM", "deepseek_v4"}};

// By LayerType; then the draft layer, which is a layer with a window to its ops.
constexpr const char* kLayerTypes[] = {"SWA", "C4A", "C128A", "MTP"};

constexpr const char* kV4Switches[] = {
    "hadamard",     "round_rotated", "index_scores",   "index_format",   "ratio0_yarn",
    "round_pooled", "scale_floor",   "fp4_rule",       "q_norm",         "rope_frequencies",
    "projections",  "prefill",       "attention_plan", "multiprocessors"};

}  // namespace

const Family& deepseek_v4() {
  static const Family kFamily = {
      .name = "deepseek_v4",
      .published = kV4Models,
      .presets = deepseek_v4_presets,
      .example = deepseek_v4_example,
      .read_config = deepseek_v4_read_config,
      .write_config = deepseek_v4_write_config,
      .validate = deepseek_v4_validate,
      .layer_types = kLayerTypes,
      .layer_type = deepseek_v4_layer_type,
      .switches = [](const ModelConfig&) -> std::span<const char* const> { return kV4Switches; },
      .selects = [](const ModelConfig& c, int i) { return type_of_layer(c, i) == LayerType::kC4A; },
      .rope = deepseek_v4_rope,
      .caches = deepseek_v4_caches,
      .cache_names = deepseek_v4_cache_names,
      .graph = deepseek_v4_graph,
      .weights = deepseek_v4_weights,
      .published_name = deepseek_v4_published_name,
      .head_copy = "head.weight",
      .second_targets = deepseek_v4_second_targets,
      .dealt = kDealt,
      .set_layer_numbers = deepseek_v4_layer_numbers,
      .set_step_numbers = deepseek_v4_step_numbers,
      .step_tensors = deepseek_v4_step_tensors,
      .logical_lists = deepseek_v4_logical_lists,
      .list_columns = deepseek_v4_list_columns,
  };
  return kFamily;
}

LayerType type_of_layer(const ModelConfig& config, int layer) {
  const int ratio = config.ratio(layer);
  return ratio == 4 ? LayerType::kC4A : ratio == 128 ? LayerType::kC128A : LayerType::kSwa;
}

const char* deepseek_v4_layer_type(const ModelConfig& config, int layer) {
  return config.is_draft(layer) ? kLayerTypes[3] : layer_type_name(type_of_layer(config, layer));
}

const char* layer_type_name(LayerType type) { return kLayerTypes[static_cast<int>(type)]; }

bool has_type(const ModelConfig& config, LayerType type) {
  for (int i = 0; i < config.num_layers(); ++i) {
    if (type_of_layer(config, i) == type) return true;
  }
  return false;
}

}  // namespace attnscope
