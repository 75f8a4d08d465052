// Absorbed MLA: DeepSeek-V3, whose tokens see all tokens before them, and V3.2, where an indexer
// scores every token before by a key of its own and attention reads the best ones alone (DSA). A
// token has one latent row for all heads; V3.2's an index key besides.
//
// Of such a model the attention alone runs: h += attention(RMSNorm(h)) per layer, final norm, head,
// greedy sampling. No MLP, no experts.
#pragma once

#include "engine/family/family.h"

namespace attnscope {

const Family& mla();

inline constexpr CacheId kLatentCache{AS_CACHE_KV, 0};         // "latent"
inline constexpr CacheId kTokenIndexCache{AS_CACHE_INDEX, 0};  // "index"

// Whether a running layer attends over the tokens that its indexer selects: entries of one token
// (ModelConfig::compress_ratios). Published models have one in every layer or in none.
bool mla_selects(const ModelConfig& config, int layer);
// Whether any layer that runs does.
bool mla_selects(const ModelConfig& config);
// (N + 64)^-0.5, times the square of YaRN's mscale.
double mla_scale(const ModelConfig& config);

// As the fields of Family.
std::span<const FamilyPreset> mla_presets();
ModelConfig mla_example();
Result<ModelConfig> mla_read_config(const std::string& path, const nlohmann::json& file);
nlohmann::ordered_json mla_write_config(const ModelConfig& config, bool fp8);
Result<void> mla_validate(const ModelConfig& config, const nlohmann::json* file);
as_rope mla_rope(const ModelConfig& config, int layer);
std::span<const NamedCache> mla_cache_names();
std::vector<CacheSpec> mla_caches(const ModelConfig& config);
// The rows that a token may select from.
std::vector<StepTensor> mla_step_tensors(const ModelConfig& config, const CacheLayout& layout);
void mla_logical_lists(const StepMetadata& step, const ModelConfig& config, LogicalMetadata& out);
ModelGraph mla_graph(const ModelConfig& config);
ModelWeights mla_weights(const ModelConfig& config);
std::string mla_published_name(std::string_view name);
std::vector<SecondTarget> mla_second_targets(
    const ModelConfig& whole, const TensorParallel& parallel,
    const std::vector<std::shared_ptr<const Weights>>& ranks);
void mla_layer_numbers(as_op_id op, int layer, const ModelConfig& config,
                       std::int32_t rows_per_block, void* params);
void mla_step_numbers(as_op_id op, const ModelConfig& config, const CacheLayout& layout,
                      std::int64_t token_budget, std::int64_t alignment, void* params);

}  // namespace attnscope
