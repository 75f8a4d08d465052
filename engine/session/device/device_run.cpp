#include "engine/session/device/device_run.h"

#include <algorithm>

#include "engine/backend/call_op.h"
#include "engine/metadata/batch_plan.h"
#include "engine/session/step/layer_ops.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

bool runs_all(const LaneSelector& lanes) {
  for (int op = 0; op < AS_OP_COUNT; ++op) {
    if (as_op_find(op)->phase == AS_PHASE_BEFORE) continue;
    if (lanes.lane(static_cast<as_op_id>(op)) != DeviceRun::kLane) return false;
  }
  return true;
}

}  // namespace

bool DeviceRun::wanted(const LaneSelector& lanes) {
  for (int op = 0; op < AS_OP_COUNT; ++op) {
    if (lanes.lane(static_cast<as_op_id>(op)) == kLane) return true;
  }
  return false;
}

bool DeviceRun::makes_lists(const ModelGraph& graph, const LaneSelector& lanes) {
  return std::ranges::all_of(list_ops(graph), [&](as_op_id op) { return lanes.lane(op) == kLane; });
}

Result<std::unique_ptr<DeviceRun>> DeviceRun::make(std::shared_ptr<ComputeDevice> device,
                                                   const SessionParts& parts, Slab& slab,
                                                   const PlanShape& most, bool serial) {
  std::unique_ptr<DeviceRun> run(new DeviceRun(parts, slab, most, serial));
  auto residency = Residency::make(std::move(device), parts, slab);
  if (!residency) return residency.error();
  run->residency_ = std::move(*residency);
  return run;
}

Result<void> DeviceRun::begin_layers(const StepMetadata& step, const as_tensor& hidden,
                                     const LaneSelector& lanes, bool may_plan, bool whole) {
  plan_ = nullptr;
  ran_.clear();
  residency_->host_wrote(hidden);
  // A plan runs all layers at once; recorded inputs and sums over ranks come between two ops. A
  // step of a model without caches is none of decoding.
  if (!may_plan || parts_.inputs || parts_.ranks.size() > 1) return {};
  if (parts_.layout.groups.empty()) return {};
  PlanShape shape = most_;
  shape.tokens = graph_tokens(step.num_tokens_in_step());
  if (!graph_refusal(step).empty() || !runs_all(lanes) || step.num_live() > shape.live ||
      step.columns > shape.columns || step.logits_width() > shape.logits ||
      step.list_columns > shape.list_columns) {
    return {};
  }
  const bool lists = makes_lists(*parts_.graph, lanes);
  auto& plan = plans_[{shape.tokens, lists}];
  if (plan == nullptr) {
    auto made = DecodePlan::make(shape, parts_, slab_, lanes, *residency_, {lists, serial_});
    if (!made) return made.error();
    plan = std::move(*made);
  }
  plan_ = plan.get();
  return plan_->begin(step, hidden, whole);
}

Result<void> DeviceRun::run_on_host(as_op_fn function, const OpParams& params,
                                    const as_call& call) {
  if (auto ok = residency_->before_host_op(params); !ok) return ok;
  if (auto ok = call_op(function, params.data(), call); !ok) return ok;
  residency_->after_host_op(params);
  return {};
}

Result<void> DeviceRun::run_beside(const std::string& lane, as_op_fn function,
                                   const OpParams& params, const as_call& host_call) {
  if (lane != kLane) return run_on_host(function, params, host_call);
  ran_.push_back({AS_OP_COUNT, -1});
  return residency_->run(function, params, false);
}

Result<void> DeviceRun::run_part(const std::string& lane, as_op_fn function, const OpParams& params,
                                 TokenPart tokens, const as_call& host_call) {
  if (lane == kLane) {
    ran_.push_back({AS_OP_COUNT, -1});
    return residency_->run_part(function, params, tokens);
  }
  if (auto ok = residency_->before_host_op(params); !ok) return ok;
  const OpParams part = tokens_of(params, tokens);
  if (auto ok = call_op(function, part.data(), host_call); !ok) return ok;
  residency_->after_host_op(params);
  return {};
}

Result<void> DeviceRun::travel(const std::string& lane, as_op_fn function, int layer,
                               const OpParams& params, const as_call& host_call,
                               const std::function<Result<void>()>& meanwhile) {
  if (lane == kLane) {
    ran_.push_back({params.op(), layer});
    return residency_->exchange(function, params, false, meanwhile);
  }
  if (auto ok = meanwhile(); !ok) return ok;
  return run_on_host(function, params, host_call);
}

Result<void> DeviceRun::show(const OpParams& params) { return residency_->show(params); }

Result<void> DeviceRun::run(const std::string& lane, as_op_fn function, int layer,
                            const OpParams& params, const as_call& host_call, bool seen,
                            OpLaunches* launches) {
  if (lane != kLane) return run_on_host(function, params, host_call);
  if (plan_ != nullptr) {
    if (auto ok = plan_->run(layer, params.op(), seen); !ok) return ok;
    if (launches != nullptr) look_at(function, layer, params, *launches);
    residency_->device_wrote(params);
    if (!seen)
      return params.op() == AS_OP_SAMPLE ? plan_->fetch(layer, params, false) : Result<void>{};
    if (auto ok = plan_->fetch(layer, params, true); !ok) return ok;
    return residency_->fetch(params);
  }
  ran_.push_back({params.op(), layer});
  if (auto ok = residency_->run(function, params, seen); !ok) return ok;
  if (launches != nullptr) look_at(function, layer, params, *launches);
  if (!seen && params.op() != AS_OP_SAMPLE) return {};
  return seen ? residency_->show(params) : residency_->fetch(params);
}

// The op has run: what cannot be learned of it is no failure.
void DeviceRun::look_at(as_op_fn function, int layer, const OpParams& params,
                        OpLaunches& launches) {
  auto found = plan_ != nullptr ? plan_->launches(layer, params.op())
                                : residency_->launches(function, params);
  launches = found ? std::move(*found) : OpLaunches::not_known(found.error().message);
}

Result<void> DeviceRun::gather(const as_tensor& hidden, const std::vector<std::int64_t>& rows,
                               const as_tensor& last) {
  return plan_ != nullptr ? Result<void>{} : residency_->gather(hidden, rows, last);
}

Result<std::vector<DecodePlan::Timed>> DeviceRun::take_times() {
  if (plan_ != nullptr) return plan_->times();
  auto times = residency_->take_times();
  if (!times) return times.error();
  std::vector<DecodePlan::Timed> all;
  for (std::size_t i = 0; i < times->size() && i < ran_.size(); ++i) {
    if (ran_[i].op != AS_OP_COUNT) all.push_back({ran_[i].op, ran_[i].layer, (*times)[i], 0, 0});
  }
  ran_.clear();
  return all;
}

}  // namespace attnscope
