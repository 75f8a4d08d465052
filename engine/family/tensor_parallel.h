// One rank's slice of a model under tensor parallelism, as serving engines deal it out. The family
// says which numbers of a model are divided; how each weight is dealt out follows from the graph
// (rank_split.h). All else is on every rank.
#pragma once

#include <memory>
#include <vector>

#include "engine/model/model_config.h"
#include "engine/model/weights.h"

namespace attnscope {

// Whether a model can be dealt out so; names the number that stands against it, and what is
// allowed.
Result<void> check_parallel(const ModelConfig& whole, const TensorParallel& parallel);

// The model as one rank has it, named after its rank. The whole one where there is one rank.
ModelConfig rank_config(const ModelConfig& whole, const TensorParallel& parallel);

// Weights by rank. Those of `own` are complete; of the others only what is dealt out is there.
// config: of the whole model.
std::vector<std::shared_ptr<const Weights>> rank_weights(const ModelConfig& config, Weights whole,
                                                         const TensorParallel& own);

}  // namespace attnscope
