// One rank's slice of a model under tensor parallelism, as serving engines deal it out:
//
//   heads, sinks     rank r of N has heads r*H/N up to (r+1)*H/N: those rows of the query
//                    up-projection, those sinks
//   output groups    its groups of wo_a, and the columns of wo_b that these feed: its output is a
//                    part, and the sum over ranks is the layer's
//   everything else  latent rows, compressors, indexer, norms, embedding: on every rank
#pragma once

#include <memory>
#include <vector>

#include "engine/model/weights.h"

namespace attnscope {

// Whether a model can be dealt out so; names the number that stands against it, and what is
// allowed.
Result<void> check_parallel(const ModelConfig& whole, const TensorParallel& parallel);

// The model as one rank has it, named after its rank. The whole one where there is one rank.
ModelConfig rank_config(const ModelConfig& whole, const TensorParallel& parallel);

// Weights by rank. Those of `own` are complete; of the others only what is dealt out is there.
std::vector<std::shared_ptr<const Weights>> rank_weights(Weights whole, const TensorParallel& own);

}  // namespace attnscope
