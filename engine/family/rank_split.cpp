#include "engine/family/rank_split.h"

#include <algorithm>
#include <cassert>
#include <set>

namespace attnscope {
namespace {

bool has_weight(const ModelGraph& graph, const Node& node, Shard shard) {
  return std::ranges::any_of(node.bindings(), [&](const Binding& b) {
    return b.to == BoundTo::kWeight && shard_of(graph, b.weight) == shard;
  });
}

bool reads_any(const Node& node, const std::set<ValueId>& values) {
  return std::ranges::any_of(node.bindings(), [&](const Binding& b) {
    return b.to == BoundTo::kValue && !b.is_output() && values.contains(b.value);
  });
}

}  // namespace

RankSplit rank_split(const ModelGraph& graph, const LayerGraph& layer) {
  RankSplit split;
  std::set<ValueId> dealt, made;
  for (const Node& node : layer.nodes()) {
    const bool sums = has_weight(graph, node, Shard::kColumns);
    if (!sums && !has_weight(graph, node, Shard::kRows) && !reads_any(node, dealt)) continue;
    split.ops.push_back(node.op());
    for (const Binding& b : node.bindings()) {
      if (b.to != BoundTo::kValue) continue;
      if (b.is_output()) {
        made.insert(b.value);
        if (!sums) dealt.insert(b.value);
      } else if (!made.contains(b.value) && std::ranges::count(split.shared, b.value) == 0) {
        split.shared.push_back(b.value);
      }
    }
  }
  return split;
}

std::vector<as_op_id> summing_ops(const ModelGraph& graph) {
  std::vector<as_op_id> ops;
  for (const LayerGraph& layer : graph.layers) {
    for (const Node& node : layer.nodes()) {
      if (!has_weight(graph, node, Shard::kColumns)) continue;
      if (std::ranges::find(ops, node.op()) == ops.end()) ops.push_back(node.op());
    }
  }
  return ops;
}

void add_sums(ModelGraph& graph) {
  assert(summing_ops(graph).size() <= 1);
  for (LayerGraph& layer : graph.layers) {
    for (const Node& node : std::vector(layer.nodes())) {
      if (!has_weight(graph, node, Shard::kColumns)) continue;
      const auto part = std::ranges::find_if(node.bindings(), &Binding::is_output);
      ModelGraph::Sum& sum = graph.sum;
      if (sum.part == kNoValue) {
        sum = {part->value,
               graph.add_value(graph.values[static_cast<std::size_t>(part->value)] + " over ranks"),
               node.op(), AS_OP_COUNT};
      }
      sum.read_by = layer.read_instead(sum.part, sum.total);
    }
  }
}

Shard shard_of(const ModelGraph& graph, std::string_view weight) {
  const auto it = graph.weights.find(weight);
  return it != graph.weights.end() ? it->second : Shard::kWhole;
}

}  // namespace attnscope
