// A small but complete scenario: all layers of the tiny model, three requests, chunked prefill,
// decode to the end.
#pragma once

#include <string>
#include <vector>

#include "engine/config/scenario.h"
#include "engine/family/models.h"

namespace attnscope {

// The tiny model, narrower than the preset: many sessions are made of it.
inline ModelConfig narrow_model(const std::vector<int>& layers = {}) {
  ModelConfig model = *preset("tiny", layers);
  model.hidden = 128;
  model.heads = 4;
  model.index_heads = 4;
  return model;
}

inline Scenario small_scenario(std::int64_t longest = 150, std::int64_t new_tokens = 6) {
  Scenario s;
  s.name = "small";
  s.model = narrow_model();
  s.seed = 3;
  s.pool_blocks = 400;
  s.limits = {64, 8};
  s.decode_steps = 4;
  const std::string text =
      "The window moves by one token a step; what leaves it stays visible only as entries. ";
  const auto add = [&](const std::string& name, std::int64_t length) {
    ScenarioRequest request;
    request.name = name;
    for (std::int64_t i = 0; i < length; ++i) {
      request.tokens.push_back(
          static_cast<unsigned char>(text[static_cast<std::size_t>(i * 7 + length) % text.size()]));
    }
    request.max_new_tokens = new_tokens;
    s.requests.push_back(request);
  };
  add("long", longest);
  add("medium", 37);
  add("short", 3);
  return s;
}

}  // namespace attnscope
