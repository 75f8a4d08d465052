// How a model's caches are stored and what fits: a report to read or to parse.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/cache/storage_plan.h"
#include "engine/model/model_config.h"

namespace attnscope {

struct StorageQuestion {
  CacheProfile profile = CacheProfile::kA;
  std::int64_t bytes = 0;  // for caches
  std::int64_t max_model_len = 0;
  std::int64_t token_budget = 0;
  TensorParallel parallel;  // of which rank; check_parallel has allowed it
};

nlohmann::ordered_json storage_report(const ModelConfig& config, const StorageQuestion& question);
std::string storage_text(const nlohmann::ordered_json& report);

}  // namespace attnscope
