#include "engine/family/deepseek_v4/deepseek_v4.h"

namespace attnscope {

as_rope deepseek_v4_rope(const ModelConfig& c, int layer) {
  const bool compressed = c.ratio(layer) > 0;
  as_rope rope{};
  rope.base = compressed ? c.compress_rope_theta : c.rope_theta;
  rope.factor = compressed || c.switches.ratio0_yarn ? c.yarn_factor : 1.0;
  rope.original_max_pos = c.yarn_original_max;
  rope.beta_fast = c.yarn_beta_fast;
  rope.beta_slow = c.yarn_beta_slow;
  rope.table.reserved = c.switches.rope_frequencies;
  return rope;
}

}  // namespace attnscope
