#include "engine/session/session_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "engine/family/models.h"
#include "engine/family/tensor_parallel.h"

namespace attnscope {

ModelConfig session_config(const Scenario& scenario) {
  ModelConfig config = rank_config(scenario.model, scenario.parallel);
  config.swaps = scenario.serving.swap_blocks > 0;
  config.context_ranks = scenario.context.ranks;  // it may have been changed since
  return config;
}

std::vector<as_op_id> ops_of_model(const ModelGraph& graph) {
  std::vector<as_op_id> ops;
  const auto add = [&](const LayerGraph& part) {
    for (const as_op_id op : part.ops()) {
      if (std::ranges::find(ops, op) == ops.end()) ops.push_back(op);
    }
  };
  add(graph.before);
  for (const LayerGraph& layer : graph.layers) add(layer);
  add(graph.after);
  return ops;
}

Result<void> check_lane_ops(std::span<const std::string> choices, const ModelGraph& graph) {
  std::vector<std::string> ops;
  for (const as_op_id op : ops_of_model(graph)) ops.emplace_back(as_op_find(op)->name);
  for (const std::string& choice : choices) {
    const std::size_t equals = choice.find('=');
    if (equals == std::string::npos) continue;
    const std::string op = choice.substr(0, equals);
    if (std::ranges::find(ops, op) != ops.end()) continue;
    return bad_input(fmt::format("--lane {}: this model runs no op {}", choice, op),
                     fmt::format("its ops: {}", fmt::join(ops, ", ")));
  }
  return {};
}

Result<void> check_lane_ops(std::span<const std::string> choices, const Scenario& scenario) {
  return check_lane_ops(choices, *model_graph(session_config(scenario)));
}

}  // namespace attnscope
