// DeepSeek-V4: sliding-window layers, C4A (compressed 4 to 1, an indexer selects entries) and C128A
// (compressed 128 to 1, all entries are read).
#pragma once

#include "engine/family/family.h"

namespace attnscope {

const Family& deepseek_v4();

ModelGraph deepseek_v4_graph(const ModelConfig& config);
// As Family::set_layer_numbers, set_step_numbers and step_tensor.
void deepseek_v4_layer_numbers(as_op_id op, int layer, const ModelConfig& config,
                               std::int32_t rows_per_block, void* params);
void deepseek_v4_step_numbers(as_op_id op, const ModelConfig& config, const CacheLayout& layout,
                              std::int64_t token_budget, std::int64_t alignment, void* params);
as_tensor deepseek_v4_step_tensor(std::string_view name, StepMetadata& step,
                                  const ModelConfig& config, const CacheLayout& layout);

bool has_type(const ModelConfig& config, LayerType type);

}  // namespace attnscope
