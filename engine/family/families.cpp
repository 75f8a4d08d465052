#include <algorithm>
#include <array>
#include <map>

#include "engine/family/deepseek_v4/deepseek_v4.h"
#include "engine/family/family.h"
#include "engine/family/rank_split.h"

namespace attnscope {

std::span<const Family* const> families() {
  static const std::array kFamilies = {
      &deepseek_v4(),
  };
  return kFamilies;
}

const Family& family_of(const ModelConfig& config) {
  const auto all = families();
  const auto it = std::ranges::find_if(all, [&](const Family* f) { return f->takes(config); });
  return it != all.end() ? **it : *all.front();
}

std::shared_ptr<const ModelGraph> model_graph(const ModelConfig& config) {
  const Family& family = family_of(config);
  auto graph = std::make_shared<ModelGraph>(family.graph(config));
  graph->family = &family;
  if (config.parallel.size > 1) add_sums(*graph);
  return graph;
}

const ModelGraph& example_graph(const Family& family) {
  static const auto kGraphs = [] {
    std::map<const Family*, std::shared_ptr<const ModelGraph>> graphs;
    for (const Family* f : families()) graphs[f] = model_graph(f->example());
    return graphs;
  }();
  return *kGraphs.at(&family);
}

}  // namespace attnscope
