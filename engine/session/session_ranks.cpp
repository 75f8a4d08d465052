// A session that is one rank of several: its peers' ops run in the lanes of its own.
#include <fmt/format.h>

#include "engine/session/session.h"

namespace attnscope {

Result<void> Session::sum_over_ranks(const CacheSource& source) {
  as_call call{};
  call.struct_size = sizeof(call);
  call.threads = parts_.threads;
  call.host = &host_;
  Peers::Runner runner;
  bool lost = false;  // the device, if anything
  runner.op = [&](int layer, const OpParams& params) -> Result<void> {
    const as_op_id id = params.op();
    const std::string& lane = lanes_.lane(id);
    Result<void> ran;
    if (device_) {
      ran = device_->run_beside(lane, lanes_.function(id), params, call);
    } else {
      as_error error{};
      const std::int32_t status = lanes_.function(id)(params.data(), &call, &error);
      if (status != AS_OK) ran = Error{static_cast<as_status>(status), error.message, {}};
    }
    if (ran) return {};
    lost = lane == DeviceRun::kLane;
    const int published = parts_.config.layers[static_cast<std::size_t>(layer)];
    return Error{ran.error().code,
                 fmt::format("step {}, layer {}, {}, lane {}: {}", cursor_.step, published,
                             params.info().name, lane, ran.error().message),
                 ran.error().hint};
  };
  runner.fetch = [&](const as_tensor& tensor) -> Result<void> {
    if (!device_) return {};
    auto ok = device_->residency().fetch(tensor);
    lost = !ok;
    return ok;
  };
  runner.wrote = [&](const as_tensor& tensor) {
    if (device_) device_->residency().host_wrote(tensor);
  };
  auto ok = peers_.sum(cursor_.layer, op_context(), frame_, source, runner);
  if (ok && parts_.ranks.size() > 1) verifier_->summed(frame_.get(Act::kYSum));
  device_failed_ = !ok && lost && ok.error().code == AS_NO_ENVIRONMENT;
  return ok;
}

}  // namespace attnscope
