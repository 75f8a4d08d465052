// The numbers of an op's params struct: they follow from the model, its caches and the limits of a
// step. Sessions fill them in, and so does who makes a call out of a capture.
#pragma once

#include "engine/cache/cache_layout.h"
#include "engine/model/model_config.h"
#include "kernels/params/op_ids.h"

namespace attnscope {

// Of an op of a layer (index among the layers that run) or after them. rows_per_block: of the
// layer's main cache as the op sees it.
void set_layer_numbers(as_op_id op, int layer, const ModelConfig& config,
                       std::int32_t rows_per_block, void* params);

// Of an op before the layers.
void set_step_numbers(as_op_id op, const ModelConfig& config, const CacheLayout& layout,
                      std::int64_t token_budget, std::int64_t alignment, void* params);

}  // namespace attnscope
