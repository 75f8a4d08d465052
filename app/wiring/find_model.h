// A model by preset name or configuration file, as commands name it.
#pragma once

#include <string>
#include <vector>

#include "engine/model/model_config.h"

namespace attnscope {

// A preset's name means the preset, whatever lies in the folder; ./NAME the file or folder.
// layers empty = all; profile empty = the model's own.
Result<ModelConfig> find_model(const std::string& name, const std::vector<int>& layers,
                               const std::string& profile);

}  // namespace attnscope
