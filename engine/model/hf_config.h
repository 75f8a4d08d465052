// Reads a Hugging Face config.json of architecture DeepseekV4ForCausalLM (or DeepSeek's own
// inference/config.json names) into a ModelConfig. Vocabulary, MoE and hyper-connection keys are
// accepted and not used; a missing required key, a wrong type or a value the byte layouts forbid is
// AS_BAD_INPUT naming file and key.
#pragma once

#include <string>
#include <vector>

#include "engine/model/model_config.h"

namespace attnscope {

// path: the file, or the folder of a checkpoint that has it. Without `layers` those that the file
// names under attnscope_layers (an exported part of a model), else all.
Result<ModelConfig> read_hf_config(const std::string& path, const std::vector<int>& layers = {});

}  // namespace attnscope
