#include "engine/backend/attention_implementation.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/io/json_object.h"
#include "kernels/params/op_table.h"

namespace attnscope {

std::vector<as_op_id> serving_ops(const AttentionBackend& backend, const AttentionLayer& layer) {
  if (!backend.runs_here()) return {};
  std::vector<as_op_id> ops;
  if (layer.chunk > 0) ops.push_back(AS_OP_LOCAL_BATCH);
  ops.insert(ops.end(), backend.ops.begin(), backend.ops.end());
  return ops;
}

as_op_fn AttentionImplementation::function(as_op_id op) const {
  const auto found = std::ranges::find(ops, op, [](const auto& one) { return one.first; });
  return found == ops.end() ? nullptr : found->second;
}

Result<const AttentionImplementation*> LayerBackend::implementation(const LaneRegistry& lanes,
                                                                    std::string_view name) {
  if (made_) {
    if (made_->lane == name) return &*made_;
    return usage_error(fmt::format("the layer's {} was made of lane {}, not of {}", backend_->name,
                                   made_->lane, shown_name(name)),
                       "make another LayerBackend for another lane");
  }
  if (!backend_->runs_here()) {
    return Error{AS_NO_ENVIRONMENT, fmt::format("{}: {}", backend_->name, backend_->why_not_here),
                 "choose a backend that a lane here computes"};
  }
  const Lane* lane = lanes.find(name);
  if (lane == nullptr) {
    return usage_error(fmt::format("lane {} is not known", shown_name(name)),
                       "allowed: " + join(lanes.names()));
  }
  if (lane->ops.count() == 0) {
    return Error{AS_NO_ENVIRONMENT, fmt::format("lane {}: {}", lane->name, lane->description),
                 "choose another lane"};
  }
  const bool gpu = name == "cuda";
  if ((gpu && !backend_->cuda_lane) || (name == "cpu" && !backend_->cpu_lane)) {
    return usage_error(fmt::format("{} does not run on lane {}", backend_->name, lane->name),
                       gpu ? "take lane cpu" : "take lane cuda");
  }
  AttentionImplementation made{lane->name, {}};
  for (const as_op_id op : serving_ops(*backend_, layer_)) {
    if (lane->ops[op] == nullptr) {
      return usage_error(fmt::format("lane {} has no {}, which {} needs", lane->name,
                                     as_op_find(op)->name, backend_->name),
                         "lanes with it: " + join(lanes.lanes_of(op)));
    }
    made.ops.emplace_back(op, lane->ops[op]);
  }
  made_ = std::move(made);
  return &*made_;
}

}  // namespace attnscope
