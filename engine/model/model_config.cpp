#include "engine/model/model_config.h"

namespace attnscope {

LayerType ModelConfig::type(int i) const {
  const int r = ratio(i);
  return r == 4 ? LayerType::kC4A : r == 128 ? LayerType::kC128A : LayerType::kSwa;
}

as_rope ModelConfig::rope(int i) const {
  const bool compressed = ratio(i) > 0;
  as_rope rope{};
  rope.base = compressed ? compress_rope_theta : rope_theta;
  rope.factor = compressed || switches.ratio0_yarn ? yarn_factor : 1.0;
  rope.original_max_pos = yarn_original_max;
  rope.beta_fast = yarn_beta_fast;
  rope.beta_slow = yarn_beta_slow;
  rope.table.reserved = switches.rope_frequencies;
  return rope;
}

}  // namespace attnscope
