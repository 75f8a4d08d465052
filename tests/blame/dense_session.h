// Small sessions of dense attention: a long request whose windows have moved and a short one that
// begins, both in step 1; step 2 decodes.
#pragma once

#include "tests/blame/tiny_session.h"

namespace attnscope {

inline void add_request(Scenario& s, std::int64_t length, std::int64_t new_tokens,
                        std::int64_t arrival = 0) {
  ScenarioRequest request;
  request.name = "r" + std::to_string(s.requests.size());
  for (std::int64_t t = 0; t < length; ++t) {
    request.tokens.push_back(static_cast<std::int32_t>((t * 37 + t * t / 7 + length) % 256));
  }
  request.max_new_tokens = new_tokens;
  request.arrival_step = arrival;
  s.requests.push_back(request);
}

// Step 0 leaves 11 tokens of the longer prompt.
inline Scenario dense_scenario(const ModelConfig& model, std::uint64_t seed = 7,
                               std::int64_t longest = 71) {
  Scenario s;
  s.name = "dense";
  s.model = model;
  s.seed = seed;
  s.pool_blocks = 900;
  s.limits = {longest - 11, 4};
  s.decode_steps = 3;
  add_request(s, longest, 4);
  // Prompts of an encoder-decoder, and under a mask, are not cut: step 1 has one beside a decoder.
  const bool whole = !model.dense.sides.empty() || !model.dense.mask.empty();
  if (whole) s.limits.token_budget = 2 * longest;
  add_request(s, whole ? 30 : 9, 4, whole ? 1 : 0);
  return s;
}

// Under a mask and a score function that no two places have alike.
inline ModelConfig masked_model(const char* name = "tiny-llama") {
  ModelConfig c = *preset(name);
  c.name = std::string("masked ") + name;
  c.dense.mask = "prefix_lm(12) && (head % 2 == 0 || kv_idx % 3 != 0)";
  c.dense.score = "score * 0.5 + 0.05 * kv_idx";
  return c;
}

inline const std::vector<std::string>& dense_names() {
  static const std::vector<std::string> kNames = {
      "tiny-llama",   "tiny-gemma",     "tiny-mha",       "tiny-mqa",
      "tiny-llama4",  "tiny-alibi",     "tiny-gptoss",    "tiny-mistral",
      "tiny-kvshare", "tiny-llama-fp8", "tiny-llama-int8"};
  return kNames;
}

}  // namespace attnscope
