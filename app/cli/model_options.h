// --model, --layers and --hidden-states: another model, or recorded inputs, in the place of the
// scenario's own.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>

#include "engine/config/scenario.h"

namespace attnscope {

inline void add_model_options(CLI::App& command, const std::shared_ptr<ModelChoice>& choice) {
  command.add_option(
      "--model", choice->model,
      "Folder of a checkpoint, a config.json or a preset, instead of the scenario's");
  command.add_option("--layers", choice->layers, "Layers that run, such as 0,2,3,4")
      ->delimiter(',');
  command.add_option("--hidden-states", choice->hidden_states,
                     "Safetensors file with the inputs of the layers, recorded elsewhere");
}

}  // namespace attnscope
