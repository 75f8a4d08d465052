#include "engine/family/dense/dense.h"

namespace attnscope {
namespace {

constexpr DealtNumber kDenseDealt[] = {
    {"heads", &ModelConfig::heads},
    {"KV heads", &ModelConfig::kv_heads},
};

constexpr const char* kDenseTypes[] = {"full", "sliding"};

constexpr PublishedModel kDenseModels[] = {
    {"LlamaForCausalLM", "llama"},
    {"MistralForCausalLM", "mistral"},
    {"Qwen3ForCausalLM", "qwen3"},
    {"Gemma3ForCausalLM", "gemma3_text"},
};

constexpr NamedCache kDenseCaches[] = {{kKeyCache, "k", "keys"}, {kValueCache, "v", "values"}};

CacheSpec dense_spec(int layer, const NamedCache& named, const ModelConfig& config) {
  CacheSpec s;
  s.layer = layer;
  s.id = named.id;
  s.name = named.name;
  s.content = named.content;
  s.record = AS_RECORD_BF16;
  s.num_kv_heads = config.kv_heads;
  s.head_dim = config.head_dim;
  s.head_dim_v = named.id == kValueCache ? config.head_dim : 0;
  s.sharding = CacheSharding::kByHead;
  const int window = dense_window(config, layer);
  const GroupKind kind = window > 0 ? GroupKind::kSliding : GroupKind::kFull;
  s.retention = {kind, config.dense.block_tokens, window};
  s.group_name = window > 0 ? "sliding" : "full";
  return s;
}

}  // namespace

const Family& dense() {
  static const Family kFamily = {
      .name = "dense",
      .published = kDenseModels,
      .presets = dense_presets,
      .read_config = dense_read_config,
      .write_config = dense_write_config,
      .validate = dense_validate,
      .layer_types = kDenseTypes,
      .layer_type = [](const ModelConfig& c,
                       int i) { return kDenseTypes[dense_window(c, i) > 0 ? 1 : 0]; },
      .switches = {},
      .selects = [](const ModelConfig&, int) { return false; },
      .rope = dense_rope,
      .caches = dense_caches,
      .cache_names = dense_cache_names,
      .graph = dense_graph,
      .weights = dense_weights,
      .published_name = dense_published_name,
      .head_copy = nullptr,
      .second_targets = dense_second_targets,
      .dealt = kDenseDealt,
      .set_layer_numbers = dense_layer_numbers,
      .set_step_numbers = dense_step_numbers,
      .step_tensors = [](const ModelConfig&,
                         const CacheLayout&) { return std::vector<StepTensor>(); },
      .logical_lists = [](const StepMetadata&, const ModelConfig&, LogicalMetadata&) {},
      .list_columns = [](std::int64_t, const ModelConfig&) { return std::int64_t{0}; },
  };
  return kFamily;
}

int dense_window(const ModelConfig& config, int layer) {
  const int published = config.layers[static_cast<std::size_t>(layer)];
  return config.dense.windows[static_cast<std::size_t>(published)];
}

as_rope dense_rope(const ModelConfig& config, int layer) {
  const bool local = dense_window(config, layer) > 0 && config.dense.local_rope_theta > 0;
  as_rope rope{};
  rope.base = local ? config.dense.local_rope_theta : config.rope_theta;
  rope.factor = 1;
  rope.table.reserved = AS_ROPE_FP32;
  return rope;
}

std::span<const NamedCache> dense_cache_names() { return kDenseCaches; }

std::vector<CacheSpec> dense_caches(const ModelConfig& config) {
  std::vector<CacheSpec> specs;
  for (int i = 0; i < config.num_layers(); ++i) {
    for (const NamedCache& named : kDenseCaches) specs.push_back(dense_spec(i, named, config));
  }
  return specs;
}

}  // namespace attnscope
