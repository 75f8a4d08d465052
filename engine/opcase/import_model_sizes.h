// Dimensions of the model in a map of tensors: where a number stands, a text such as
// "heads*head_dim", "heads*head_dim/o_groups" or "q_lora+head_dim" is taken for what the model has.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/model/model_config.h"
#include "kernels/params/result.h"

namespace attnscope {

// Replaces the texts by numbers, in shapes, strides, slices and pads of tensors, in numbers, ropes
// and sizes of caches. model: null = the preset that "model" of the map names; without either a
// text is AS_BAD_INPUT, as is one with a name that no model has. "model" is taken out.
Result<void> fill_in_sizes(nlohmann::json& map, const std::string& path, const ModelConfig* model);

}  // namespace attnscope
