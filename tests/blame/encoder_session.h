// Small sessions of encoders of dense attention, whose requests are computed whole in one step.
#pragma once

#include "tests/blame/dense_session.h"

namespace attnscope {

// Three requests in step 0; three more in step 1, one of which waits for step 2.
inline Scenario encoder_scenario(const ModelConfig& model, std::uint64_t seed = 7) {
  Scenario s;
  s.name = "encoder";
  s.model = model;
  s.seed = seed;
  s.pool_blocks = 2;
  s.limits = {100, 4};
  s.decode_steps = 0;
  add_request(s, 57, 1);
  add_request(s, 1, 1);
  add_request(s, 40, 1);
  add_request(s, 33, 1, 1);
  add_request(s, 50, 1, 1);
  add_request(s, 100, 1, 1);
  return s;
}

// Soft cap, ALiBi and a scale: what the presets have not.
inline ModelConfig biased_encoder() {
  ModelConfig c = *preset("tiny-bert");
  c.name = "biased";
  c.kv_heads = 2;
  c.dense.alibi_bias_max = 8;
  c.dense.soft_cap = 6;
  c.dense.scale = 0.25;
  return c;
}

}  // namespace attnscope
