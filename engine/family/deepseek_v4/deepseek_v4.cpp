#include "engine/family/deepseek_v4/deepseek_v4.h"

namespace attnscope {

const Family& deepseek_v4() {
  static const Family kFamily = {
      .name = "deepseek_v4",
      .takes = [](const ModelConfig& config) { return !config.compress_ratios.empty(); },
      .example = [] { return *preset("tiny"); },
      .graph = deepseek_v4_graph,
      .set_layer_numbers = deepseek_v4_layer_numbers,
      .set_step_numbers = deepseek_v4_step_numbers,
      .step_tensor = deepseek_v4_step_tensor,
  };
  return kFamily;
}

bool has_type(const ModelConfig& config, LayerType type) {
  for (int i = 0; i < config.num_layers(); ++i) {
    if (config.type(i) == type) return true;
  }
  return false;
}

}  // namespace attnscope
