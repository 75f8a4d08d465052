// What tensor parallelism makes of a graph. Weights say how they are dealt out (Shard); what
// follows of it is found here: an op that reads a rank's part of a weight, or of a value, runs on
// every rank for itself. One whose weight is dealt out by columns gives a part of a sum.
#pragma once

#include <string_view>
#include <vector>

#include "engine/family/op_graph.h"

namespace attnscope {

struct RankSplit {
  std::vector<as_op_id> ops;    // of a layer, that every rank runs on its part, in order
  std::vector<ValueId> shared;  // what these read that is the same on every rank
};
RankSplit rank_split(const ModelGraph& graph, const LayerGraph& layer);

// Ops of layers that make a part of a sum over ranks. A model has one at most (check_parallel).
std::vector<as_op_id> summing_ops(const ModelGraph& graph);

// Puts the sum over ranks between the op that makes a part of it and the one that reads it.
void add_sums(ModelGraph& graph);

// How a weight is dealt out; kWhole for one that the graph does not have.
Shard shard_of(const ModelGraph& graph, std::string_view weight);

}  // namespace attnscope
