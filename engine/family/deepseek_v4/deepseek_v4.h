// DeepSeek-V4: sliding-window layers, C4A (compressed 4 to 1, an indexer selects entries) and C128A
// (compressed 128 to 1, all entries are read); a draft layer (MTP) behind them, with a window,
// which predicts a token more.
#pragma once

#include "engine/family/family.h"

namespace attnscope {

const Family& deepseek_v4();

// By compress ratio: 0, 4, 128. A draft layer has 0.
enum class LayerType { kSwa, kC4A, kC128A };
LayerType type_of_layer(const ModelConfig& config, int layer);

// As the fields of Family.
std::span<const FamilyPreset> deepseek_v4_presets();
ModelConfig deepseek_v4_example();
Result<ModelConfig> deepseek_v4_read_config(const std::string& path, const nlohmann::json& file);
nlohmann::ordered_json deepseek_v4_write_config(const ModelConfig& config, bool fp8);
Result<void> deepseek_v4_validate(const ModelConfig& config, const nlohmann::json* file);
const char* deepseek_v4_layer_type(const ModelConfig& config, int layer);
as_rope deepseek_v4_rope(const ModelConfig& config, int layer);
std::string deepseek_v4_published_name(std::string_view name);
std::vector<SecondTarget> deepseek_v4_second_targets(
    const ModelConfig& whole, const TensorParallel& parallel,
    const std::vector<std::shared_ptr<const Weights>>& ranks);
ModelGraph deepseek_v4_graph(const ModelConfig& config);
ModelWeights deepseek_v4_weights(const ModelConfig& config);
void deepseek_v4_layer_numbers(as_op_id op, int layer, const ModelConfig& config,
                               std::int32_t rows_per_block, void* params);
void deepseek_v4_step_numbers(as_op_id op, const ModelConfig& config, const CacheLayout& layout,
                              std::int64_t token_budget, std::int64_t alignment, void* params);
std::vector<StepTensor> deepseek_v4_step_tensors(const ModelConfig& config,
                                                 const CacheLayout& layout);
void deepseek_v4_logical_lists(const StepMetadata& step, const ModelConfig& config,
                               LogicalMetadata& out);
std::int64_t deepseek_v4_list_columns(std::int64_t longest, const ModelConfig& config);

const char* layer_type_name(LayerType type);  // "SWA", "C4A", "C128A"
bool has_type(const ModelConfig& config, LayerType type);

}  // namespace attnscope
