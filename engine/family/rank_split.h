// What tensor parallelism makes of a graph: which part of a weight a rank has, and what follows of
// it. An op that reads a rank's part of a weight, or of a value, runs on every rank for itself. One
// whose weight is dealt out by columns gives a part of a sum. A cache whose rows are made of a
// rank's heads has other rows on every rank.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "engine/family/op_graph.h"

namespace attnscope {

// Sets ModelGraph::weights of all that ops read. twice: the same model with twice of each number
// that ranks share (DealtNumber). Values of an op and its weights have axes of the same
// names ("out", "H"); where a value has grown, the weight is dealt out along that axis. Likewise
// ModelGraph::caches: rows are the rank's own where the op that writes them makes them of a tensor
// that has grown.
void deal_out(ModelGraph& graph, const ModelGraph& twice);

// Sets CacheSpec::sharding of a model's caches as its graph has it. twice: the caches of the model
// with twice of each number. An error where a cache's rows do not grow with what is written there,
// or a cache has no writer: then the family's caches and its graph contradict each other.
Result<void> deal_caches(const ModelGraph& graph, std::vector<CacheSpec>& specs,
                         std::span<const CacheSpec> twice);

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
