#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <numeric>

#include "engine/family/deepseek_v4/deepseek_v4.h"
#include "engine/family/dense/dense.h"
#include "engine/family/family.h"
#include "engine/family/mla/mla.h"
#include "engine/family/models.h"
#include "engine/family/rank_split.h"
#include "engine/family/step_nodes.h"

namespace attnscope {

std::span<const Family* const> families() {
  static const std::array kFamilies = {
      &deepseek_v4(),
      &dense(),
      &mla(),
  };
  return kFamilies;
}

const Family& family_of(const ModelConfig& config) {
  const auto all = families();
  const auto it =
      std::ranges::find_if(all, [&](const Family* f) { return config.family == f->name; });
  return it != all.end() ? **it : *all.front();
}

ModelConfig with_twice_dealt(const ModelConfig& config) {
  ModelConfig twice = config;
  for (const DealtNumber& d : family_of(config).dealt) twice.*d.number *= 2;
  return twice;
}

std::shared_ptr<const ModelGraph> model_graph(const ModelConfig& config) {
  const Family& family = family_of(config);
  auto graph = std::make_shared<ModelGraph>(family.graph(config));
  graph->family = &family;
  if (config.swaps) {
    std::vector<Node> nodes = graph->before.nodes(), swaps = swap_nodes();
    const auto decided = std::ranges::find(nodes, AS_OP_SCHEDULE, &Node::op);
    nodes.insert(std::next(decided), swaps.begin(), swaps.end());
    graph->before = LayerGraph(std::move(nodes));
  }
  const ModelWeights weights = family.weights(config);
  for (const WeightSpec& w : weights.around) graph->weights.emplace(w.name, Shard::kWhole);
  for (const std::vector<WeightSpec>& layer : weights.layers) {
    for (const WeightSpec& w : layer) graph->weights.emplace(w.name, Shard::kWhole);
  }
  deal_out(*graph, family.graph(with_twice_dealt(config)));
  // Which of them a model uses has no part in their numbers.
  const std::vector<StepTensor> own = family.step_tensors(config, CacheLayout());
  graph->before.number_step_tensors(own);
  graph->after.number_step_tensors(own);
  for (LayerGraph& layer : graph->layers) layer.number_step_tensors(own);
  if (config.parallel.size > 1) add_sums(*graph);
  return graph;
}

ModelConfig example_model(const Family& family) {
  ModelConfig config = family.example();
  config.layers.resize(static_cast<std::size_t>(config.published_layers()));
  std::iota(config.layers.begin(), config.layers.end(), 0);
  return config;
}

const ModelGraph& example_graph(const Family& family) {
  static const auto kGraphs = [] {
    std::map<const Family*, std::shared_ptr<const ModelGraph>> graphs;
    for (const Family* f : families()) graphs[f] = model_graph(example_model(*f));
    return graphs;
  }();
  return *kGraphs.at(&family);
}

const Node* example_node(as_op_id op) {
  for (const Family* family : families()) {
    const ModelGraph& graph = example_graph(*family);
    for (const LayerGraph* part : {&graph.before, &graph.after}) {
      if (const Node* node = part->find(op)) return node;
    }
    for (const LayerGraph& layer : graph.layers) {
      if (const Node* node = layer.find(op)) return node;
    }
  }
  return nullptr;
}

CacheId table_cache(as_op_id op) {
  for (const Family* family : families()) {
    for (const LayerGraph& layer : example_graph(*family).layers) {
      const Node* node = layer.find(op);
      if (node == nullptr) continue;
      for (const Binding& b : node->bindings()) {
        if (b.to == BoundTo::kTable) return b.role;
      }
    }
  }
  return {};
}

}  // namespace attnscope
