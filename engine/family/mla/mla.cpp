#include "engine/family/mla/mla.h"

#include <cmath>

#include "engine/model/numbers.h"
#include "kernels/params/mla_params.h"

namespace attnscope {
namespace {

// Latent rows and the indexer are on every rank: all select the same tokens.
constexpr DealtNumber kMlaDealt[] = {{"heads", &ModelConfig::heads}};

constexpr const char* kMlaTypes[] = {"MLA", "DSA"};

// Of models with an indexer.
constexpr const char* kMlaSwitches[] = {"index_scores"};

constexpr PublishedModel kMlaModels[] = {{"DeepseekV3ForCausalLM", "deepseek_v3"},
                                         {"DeepseekV32ForCausalLM", "deepseek_v32"}};

constexpr NamedCache kMlaCaches[] = {{kLatentCache, "latent", "latent rows"},
                                     {kTokenIndexCache, "index", "index keys"}};

CacheSpec mla_spec(int layer, const NamedCache& named, const ModelConfig& config) {
  CacheSpec s;
  s.layer = layer;
  s.id = named.id;
  s.name = named.name;
  s.content = named.content;
  s.retention = {GroupKind::kFull, config.mla.block_tokens, 0};
  s.group_name = "MLA";
  return s;
}

}  // namespace

const Family& mla() {
  static const Family kFamily = {
      .name = "mla",
      .published = kMlaModels,
      .presets = mla_presets,
      .example = mla_example,
      .read_config = mla_read_config,
      .write_config = mla_write_config,
      .validate = mla_validate,
      .layer_types = kMlaTypes,
      .layer_type = [](const ModelConfig& c,
                       int i) { return kMlaTypes[mla_selects(c, i) ? 1 : 0]; },
      .switches = [](const ModelConfig& c) -> std::span<const char* const> {
        if (!c.mla.indexer) return {};
        return kMlaSwitches;
      },
      .selects = [](const ModelConfig& c, int i) { return mla_selects(c, i); },
      .rope = mla_rope,
      .caches = mla_caches,
      .cache_names = mla_cache_names,
      .graph = mla_graph,
      .weights = mla_weights,
      .published_name = mla_published_name,
      .head_copy = nullptr,
      .second_targets = mla_second_targets,
      .dealt = kMlaDealt,
      .set_layer_numbers = mla_layer_numbers,
      .set_step_numbers = mla_step_numbers,
      .step_tensors = mla_step_tensors,
      .logical_lists = mla_logical_lists,
      .list_columns = [](std::int64_t, const ModelConfig&) { return std::int64_t{0}; },
  };
  return kFamily;
}

bool mla_selects(const ModelConfig& config, int layer) {
  return config.mla.indexer && config.ratio(layer) == 1;
}

bool mla_selects(const ModelConfig& config) {
  for (int i = 0; i < config.num_layers(); ++i) {
    if (mla_selects(config, i)) return true;
  }
  return false;
}

double mla_scale(const ModelConfig& c) {
  const double mscale =
      c.yarn_factor > 1 ? 0.1 * c.mla.mscale * std::log(c.yarn_factor) + 1.0 : 1.0;
  return mscale * mscale / std::sqrt(static_cast<double>(c.mla.nope_dim + c.rope_dim));
}

as_rope mla_rope(const ModelConfig& c, int) {
  as_rope rope{};
  rope.base = c.rope_theta;
  rope.factor = c.yarn_factor;
  rope.original_max_pos = c.yarn_original_max;
  rope.beta_fast = c.yarn_beta_fast;
  rope.beta_slow = c.yarn_beta_slow;
  rope.table.reserved = AS_ROPE_FP32;
  return rope;
}

std::span<const NamedCache> mla_cache_names() { return kMlaCaches; }

std::vector<CacheSpec> mla_caches(const ModelConfig& config) {
  std::vector<CacheSpec> specs;
  for (int i = 0; i < config.num_layers(); ++i) {
    CacheSpec latent = mla_spec(i, kMlaCaches[0], config);
    latent.record = config.mla.latent_record;
    latent.head_dim = AS_MLA_WIDTH;
    latent.head_dim_v = AS_MLA_LATENT;
    specs.push_back(latent);
    if (!mla_selects(config, i)) continue;
    CacheSpec index = mla_spec(i, kMlaCaches[1], config);
    index.record = AS_RECORD_INDEX_FP8;
    index.head_dim = config.index_dim;
    specs.push_back(index);
  }
  return specs;
}

std::vector<StepTensor> mla_step_tensors(const ModelConfig& config, const CacheLayout&) {
  std::vector<StepTensor> tensors;
  tensors.push_back({.name = "seen_lens",
                     .used = mla_selects(config),
                     .tokens_per_row = 1,
                     .selected_from = true});
  return tensors;
}

void mla_logical_lists(const StepMetadata& step, const ModelConfig& config, LogicalMetadata& out) {
  out.own = mla_step_tensors(config, CacheLayout());
  StepTensor& seen = out.own.front();
  if (!seen.used) return;
  const std::int64_t tokens = step.num_tokens_in_step();
  seen.assign(tokens, step.list_columns);
  for (std::int64_t t = 0; t < tokens; ++t) {
    seen.numbers[to_size(t)] = static_cast<std::int32_t>(step.positions[to_size(t)] + 1);
  }
}

}  // namespace attnscope
