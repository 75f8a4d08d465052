#include "app/wiring/deepseek_v4/model_reference.h"

#include <string>

#include "app/wiring/model_tensors.h"
#include "engine/model/fp8_projections.h"

namespace attnscope {

using reference::ModelReference;

reference::ModelNumbers model_numbers(const ModelConfig& c) {
  reference::ModelNumbers n;
  n.hidden = c.hidden;
  n.heads = c.heads;
  n.q_lora = c.q_lora;
  n.o_lora = c.o_lora;
  n.o_groups = c.o_groups;
  n.head_dim = c.head_dim;
  n.window = c.window;
  n.index_heads = c.index_heads;
  n.index_dim = c.index_dim;
  n.index_topk = c.index_topk;
  n.norm_eps = c.rms_eps;
  n.rope_theta = c.rope_theta;
  n.compress_rope_theta = c.compress_rope_theta;
  n.yarn_factor = c.yarn_factor;
  n.yarn_original_max = c.yarn_original_max;
  n.yarn_beta_fast = c.yarn_beta_fast;
  n.yarn_beta_slow = c.yarn_beta_slow;
  n.compress_ratios = c.compress_ratios;
  n.layers = c.layers;
  n.draft_layers = c.draft_layers;
  n.yarn_in_every_layer = c.switches.ratio0_yarn;
  n.fp32_frequencies = c.switches.rope_frequencies == AS_ROPE_FP32;
  n.keep_fp8_values = c.switches.fp8_projections;
  n.keep_fp8_output = groups_run_in_fp8(c, c.o_lora, c.heads_per_group() * c.head_dim);
  n.sink_shift = static_cast<float>(c.sink_shift);
  n.sinks = c.sinks;
  return n;
}

Result<std::unique_ptr<ModelReference>> model_reference(const Scenario& scenario,
                                                        const as_threads* threads) {
  // wo_a is published in FP8 and may run in bf16, which ref.model knows.
  const auto bf16 = [](const std::string& name) { return name.find("wo_a") != name.npos; };
  auto tensors = model_tensors(scenario, threads, bf16);
  if (!tensors) return tensors.error();
  return ModelReference::make(model_numbers(scenario.model), tensors->source, tensors->owner);
}

}  // namespace attnscope
