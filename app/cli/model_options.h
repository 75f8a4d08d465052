// --model, --layers and --hidden-states: another model, or recorded inputs, in the place of the
// scenario's own. --tp and --rank: one rank's slice of it. --attend: how rows of host memory come.
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
  command.add_option("--cache-dtype", choice->cache_dtype,
                     "Dense attention: what rows of K and V hold, such as fp8_tensor");
  command.add_option("--cache-layout", choice->cache_layout,
                     "Dense attention: how pages of K and V lie in memory, NHD or HND");
  command
      .add_option("--first-tokens-16bit", choice->first_tokens,
                  "Beside rows of codes: so many first tokens of a request keep 16 bits")
      ->check(CLI::Range(0, 1 << 24));
  command.add_option("--hidden-states", choice->hidden_states,
                     "Safetensors file with the inputs of the layers, recorded elsewhere");
  command.add_option(
      "--attend", choice->attend,
      "Rows in host memory: none, da or dba, and layers that do otherwise: da,4=dba");
  command.add_option("--tp", choice->ranks, "Deal heads and output groups out to N ranks; see one")
      ->check(CLI::Range(1, 128));
  command.add_option("--rank", choice->rank, "With --tp: the rank that is seen (default 0)")
      ->check(CLI::Range(0, 127));
}

}  // namespace attnscope
