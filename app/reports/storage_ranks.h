// What one of several ranks holds of a model's caches, and what the ranks send each other: tables
// of the storage report (storage_report.h).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "app/reports/storage_report.h"
#include "engine/model/model_config.h"

namespace attnscope {

// A rank for a part of the heads. whole: the model as one rank alone has it.
nlohmann::ordered_json tensor_ranks_json(const ModelConfig& whole, const StorageQuestion& question);
std::string tensor_ranks_text(const nlohmann::ordered_json& table);

// A rank for a part of the tokens, dealt out one by one. config: of a rank of tensor parallelism,
// where there are some.
nlohmann::ordered_json context_ranks_json(const ModelConfig& config,
                                          const StorageQuestion& question);
std::string context_ranks_text(const nlohmann::ordered_json& table);

}  // namespace attnscope
