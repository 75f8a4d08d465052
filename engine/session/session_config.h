// The model of one rank as a session of a scenario runs it, and its ops.
#pragma once

#include "engine/config/scenario.h"
#include "engine/family/op_graph.h"

namespace attnscope {

// What the scenario says beside its model may add ops: blocks that are swapped, ranks of a context.
ModelConfig session_config(const Scenario& scenario);

// In the order of a step, each once.
std::vector<as_op_id> ops_of_model(const ModelGraph& graph);

// AS_BAD_INPUT where a choice (as LaneSelector::make) is of an op that the model does not have.
Result<void> check_lane_ops(std::span<const std::string> choices, const ModelGraph& graph);
Result<void> check_lane_ops(std::span<const std::string> choices, const Scenario& scenario);

}  // namespace attnscope
