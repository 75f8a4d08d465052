#include "app/wiring/mla/mla_reference.h"

#include <cmath>
#include <string>

#include "app/wiring/model_tensors.h"
#include "engine/family/mla/mla.h"

namespace attnscope {

reference::MlaNumbers mla_numbers(const ModelConfig& c) {
  const MlaAttention& m = c.mla;
  reference::MlaNumbers n;
  n.hidden = c.hidden;
  n.heads = c.heads;
  n.q_lora = c.q_lora;
  n.nope_dim = m.nope_dim;
  n.value_dim = m.value_dim;
  n.index_heads = c.index_heads;
  n.index_topk = c.index_topk;
  n.norm_eps = c.rms_eps;
  n.index_norm_eps = m.index_norm_eps;
  n.rope_theta = c.rope_theta;
  n.yarn_factor = c.yarn_factor;
  n.yarn_original_max = c.yarn_original_max;
  n.yarn_beta_fast = c.yarn_beta_fast;
  n.yarn_beta_slow = c.yarn_beta_slow;
  n.layers = c.layers;
  for (int i = 0; i < c.num_layers(); ++i) n.selects.push_back(mla_selects(c, i));
  n.tied = m.tied;
  n.scale = std::pow(static_cast<double>(n.nope_dim + n.rope_dim), -0.5);
  // Longer contexts have sharper scores.
  if (n.yarn_factor > 1) n.scale *= std::pow(1 + 0.1 * m.mscale * std::log(n.yarn_factor), 2);
  return n;
}

Result<std::unique_ptr<reference::ModelReference>> mla_reference(const Scenario& scenario,
                                                                 const as_threads* threads) {
  // FP8 projections run in bf16 here.
  auto tensors = model_tensors(scenario, threads, [](const std::string&) { return true; });
  if (!tensors) return tensors.error();
  return reference::make_mla_model(mla_numbers(scenario.model), tensors->source, tensors->owner);
}

}  // namespace attnscope
