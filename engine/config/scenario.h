// A scenario: which model, which requests, which limits. JSON with comments (//, /* */), one parser
// for all of the project's files; unknown keys are errors.
//
//   {
//     "version": 1,
//     "name": "default",
//     "model": {"preset": "tiny", "layers": [0, 1, 2, 3], "seed": 1},   // or {"config":
//     "config.json"} "profile": "vllm", "pool_blocks": 1200, "token_budget": 512, "max_requests":
//     8, "decode_steps": 20,              // default of `run` when neither --steps nor
//     --decode-steps "requests": [
//       {"name": "manual", "text_file": "manual/manual.md", "offset": 0, "tokens": 2100,
//       "max_new_tokens": 24},
//       {"name": "inline", "text": "Why does the window move?", "max_new_tokens": 24}
//     ]
//   }
//
// text_file is looked up relative to the scenario file, then to the assets folder; offset and
// tokens are in bytes (one token a byte).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/model_config.h"
#include "engine/sched/scheduler.h"

namespace attnscope {

struct ScenarioRequest {
  std::string name;
  std::vector<std::int32_t> tokens;  // bytes of the prompt
  std::int64_t max_new_tokens = 0;
};

struct Scenario {
  std::string name;
  std::string path;  // file it came from
  std::string text;  // the file as read, for reports and keys
  ModelConfig model;
  std::uint64_t seed = 1;
  std::int64_t pool_blocks = 0;  // null block included
  SchedulerLimits limits;
  std::int64_t decode_steps = 20;
  std::vector<ScenarioRequest> requests;
};

// A name from assets/scenarios or a path. Malformed JSON is reported with line and column, a wrong
// or unknown key with its place ("requests[1].tokens") and the allowed values; a prompt that the
// pool can never hold names the request, its demand and the pool.
Result<Scenario> load_scenario(std::string_view name_or_path);
std::vector<std::string> scenario_names();

// The assets folder: $ATTNSCOPE_ASSETS, else the one beside the sources the binary was built from.
Result<std::string> assets_folder();

}  // namespace attnscope
