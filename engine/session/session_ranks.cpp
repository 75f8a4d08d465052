// A session that is one rank of several: its peers' ops run in the lanes of its own.
#include <fmt/format.h>

#include "engine/backend/call_op.h"
#include "engine/session/session.h"
#include "engine/session/step/between_ops.h"

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

}  // namespace attnscope
