// The ops that make a step's slots and lists of its tables: slot_mapping, swa_index, c128_index.
// They run before the layers, on the host's tensors or as a part of a recorded decode step.
#pragma once

#include <span>

#include "engine/metadata/step_metadata.h"
#include "engine/model/model_config.h"
#include "engine/session/op_params.h"

namespace attnscope {

// Those of a model's step, in their order.
std::span<const as_op_id> list_ops(const ModelConfig& config);

// Fills the struct of one of them.
OpParams list_op_params(as_op_id op, StepMetadata& step, const ModelConfig& config,
                        const CacheLayout& layout);

}  // namespace attnscope
