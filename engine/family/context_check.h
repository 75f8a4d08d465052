// Which models can have the rows of a request dealt out over ranks (engine/cache/context_split.h).
#pragma once

#include "engine/cache/context_split.h"
#include "engine/model/model_config.h"

namespace attnscope {

// The model as ranks that share requests have it: how long its blocks are may depend on them.
ModelConfig shared_config(ModelConfig model, const ContextSplit& split);

// Of a model, shared or not yet. An error names what stands against it, and what is allowed.
// Under tensor parallelism each of its ranks has a group of ranks of its own for its heads.
Result<void> check_context(const ModelConfig& model, const ContextSplit& split);

// Dims of a head's query, and of what its attention puts out, where check_context() allows ranks.
struct AttendedDims {
  std::int64_t query = 0, value = 0;
};
AttendedDims attended_dims(const ModelConfig& model);

}  // namespace attnscope
