// What a scenario means: how much it asks of the pool and of memory, and what its profile sets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/config/scenario.h"

namespace attnscope {

struct RequestNeed {
  std::int64_t prompt = 0, fresh = 0, blocks = 0;  // fresh: new tokens; blocks: at most
};
struct ScenarioNeeds {
  std::vector<RequestNeed> requests;
  std::int64_t blocks = 0;           // all requests together, at most
  std::int64_t usable = 0;           // blocks of the pool without the null block
  std::int64_t pool_bytes = 0;       // of the caches
  std::int64_t weight_bytes = 0;     // bf16
  int at_once = 0;                   // requests that run side by side, in order of arrival
  std::vector<std::string> profile;  // profile_lines()
};
ScenarioNeeds scenario_needs(const Scenario& scenario);
// "default: tiny, 4 layers (SWA, C4A, C128A, C4A), 3 requests, 2 936 prompt tokens; the pool of 640
// blocks holds all at once (546 needed)."
std::string scenario_sentence(const Scenario& scenario, const ScenarioNeeds& needs);
// "Caches 22.9 MiB (640 blocks × 36.6 KiB), weights 12 MiB."
std::string memory_sentence(const Scenario& scenario, const ScenarioNeeds& needs);
// What the profile sets, one switch that the model has a line.
std::vector<std::string> profile_lines(const ModelConfig& model);

}  // namespace attnscope
