// A session that is one rank of several: its peers' ops run in the lanes of its own. And one whose
// requests are dealt out over ranks.
#include <fmt/format.h>

#include <algorithm>

#include "engine/backend/call_op.h"
#include "engine/family/context_check.h"
#include "engine/model/numbers.h"
#include "engine/session/session.h"
#include "engine/session/step/between_ops.h"
#include "engine/session/step/context_parallel.h"
#include "engine/session/step/op_change.h"
#include "engine/session/verify/context_checks.h"

namespace attnscope {

Result<void> Session::sum_over_ranks(const CacheSource& source) {
  if (parts_.ranks.size() < 2) return {};
  as_call call = host_call(parts_.threads);
  call.host = &host_;
  TensorParallelSum::Runner runner;
  bool lost = false;  // the device, if anything
  OpParams part;      // of the peer that ran last: the op that makes its part of the sum
  // Tensors, and the rows of caches.
  const auto fetch_all = [&](const OpParams& params) -> Result<void> {
    if (!device_) return {};
    auto ok = device_->residency().fetch(params);
    lost = !ok;
    return ok;
  };
  runner.op = [&](int layer, int rank, const OpParams& params) -> Result<void> {
    const as_op_id id = params.op();
    const std::string& lane = lanes_.lane(id);
    const as_op_fn function = lanes_.function(id);
    verifier_->before_rank_op(rank, layer, params, lane);
    const auto ran = device_ ? device_->run_beside(lane, function, params, call)
                             : call_op(function, params.data(), call);
    if (id == parts_.graph->sum.made_by) part = params;
    if (ran) {
      // Looks at weights, numbers and places alone, also where no reference runs.
      if (witness_) witness_->rank_op_done(*this, params, rank);
      if (device_ && references() == References::kNone) return {};
      if (auto ok = fetch_all(params); !ok) return ok;
      return verifier_->rank_op(rank, layer, params, lane);
    }
    lost = lane == DeviceRun::kLane;
    const int published = parts_.config.layers[static_cast<std::size_t>(layer)];
    return Error{ran.error().code,
                 fmt::format("step {}, layer {}, {}, lane {}: {}", cursor_.step, published,
                             params.info().name, lane, ran.error().message),
                 ran.error().hint};
  };
  runner.fetch = [&](const as_tensor& tensor) -> Result<void> {
    if (device_) {
      auto ok = device_->residency().fetch(tensor);
      lost = !ok;
      if (!ok) return ok;
    }
    const bool of_peer = part.op() == parts_.graph->sum.made_by &&
                         part.get<as_linear_params>().y.data == tensor.data;
    if (of_peer) verifier_->rank_part(cursor_.layer, part.get<as_linear_params>());
    return {};
  };
  runner.wrote = [&](const as_tensor& tensor) {
    if (device_) device_->residency().host_wrote(tensor);
  };
  auto ok = tensor_parallel_.sum(cursor_.layer, op_context(), frame_, source, runner);
  const BetweenOps* between = lanes_.between();
  if (ok && between != nullptr && between->summed != nullptr) {
    between->summed(frame_.get(parts_.graph->sum.total));
  }
  if (ok) verifier_->summed(cursor_.layer, frame_.get(parts_.graph->sum.total));
  device_failed_ = !ok && lost && ok.error().code == AS_NO_ENVIRONMENT;
  return ok;
}

Result<void> Session::make_ranks(const Scenario& scenario) {
  if (!scenario.context.splits()) return {};
  auto ok = check_context(scenario.model, scenario.context);
  if (!ok) return ok;
  context_ = std::make_unique<ContextParallel>(parts_, scenario.context, slab_->num_blocks());
  context_checks_ = std::make_unique<ContextChecks>(parts_, *context_, *verifier_);
  return {};
}

bool Session::on_ranks(as_op_id op, int layer) const {
  if (context_ == nullptr || layer < 0) return false;
  if (change_ != nullptr && change_->changes(op, layer)) return false;
  return ContextParallel::inserts(op) || ContextParallel::attends(op);
}

Result<void> Session::run_on_ranks(as_op_id op, int layer, const OpParams& params,
                                   const as_call& call) {
  ContextParallel::Calls calls;
  const as_op_fn function = lanes_.function(op);
  calls.op = [&](const OpParams& p) { return call_op(function, p.data(), call); };
  calls.merge = call;
  if (const BetweenOps* between = lanes_.between()) calls.between = between->ranks;
  if (references() != References::kNone) {
    calls.watch = context_checks_.get();
    context_checks_->begin_op(metadata_, lanes_.lane(op));
  }
  // Ranks have their rows in host memory: a lane of a device gets tensors of the host.
  if (device_) {
    if (auto ok = device_->residency().before_host_op(params); !ok) return ok;
  }
  if (ContextParallel::attends(op)) {
    if (auto ok = context_->attend(layer, params, metadata_, calls); !ok) return ok;
  } else {
    if (auto ok = context_->insert(layer, params, metadata_, calls); !ok) return ok;
    if (auto ok = calls.op(params); !ok) return ok;
    context_->inserted(layer, params, calls);
  }
  if (device_) device_->residency().after_host_op(params);
  return {};
}

void Session::refill_ranks() {
  if (context_ == nullptr) return;
  std::vector<std::int32_t> groups(to_size(slab_->num_blocks()), -1);
  const std::vector<BlockOwner> owners = serving_->owners();
  for (const std::int32_t block : serving_->blocks_with_content()) {
    groups[to_size(block)] = owners[to_size(block)].group;
    static_cast<void>(slab_->block(block));  // a device may have newer bytes
  }
  context_->take_over(*slab_, groups);
}

}  // namespace attnscope
