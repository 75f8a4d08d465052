// A session in which some ops are computed otherwise than their lanes would.
#include <fmt/format.h>

#include "engine/backend/call_op.h"
#include "engine/session/rewind_points.h"
#include "engine/session/session.h"
#include "engine/session/step/op_change.h"

namespace attnscope {

Result<void> Session::change_ops(OpChange* change, std::int64_t step) {
  forget_change();  // steps before it are as they were
  if (auto ok = seek({step, -1, 0, false}); !ok) return ok;
  if (cursor_.step != step) return {};  // cancelled on the way
  rewind_points_->drop_after(step);
  replay_watch_.forget_after(step);
  token_watch_->forget_plain();
  ahead_.clear();
  change_ = change;
  changed_from_ = step;
  verifier_->set_change(change);
  if (observer_ != nullptr) observer_->lanes_changed(*this);
  return {};
}

void Session::forget_change() {
  if (change_ != nullptr) replay_watch_.forget_after(changed_from_);
  change_ = nullptr;
  verifier_->set_change(nullptr);
}

Result<const OpParams*> Session::as_called(int layer, const OpParams& params, bool by_device) {
  // A plan's tensors are its own.
  const bool planned = by_device && device_->planned();
  if (!parts_.adversarial_lists || !AdversarialLists::apply_to(params.op()) || planned) {
    return &params;
  }
  const as_op_info& info = params.info();
  for (std::uint32_t i = 0; by_device && i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.kind != AS_TAP_TENSOR || tap.direction != AS_TAP_IN) continue;
    auto ok = device_->residency().fetch(params.tensor(tap.offset));
    if (!ok) return device_failure(ok.error());
  }
  const OpParams& dressed = adversarial_.dress(params, metadata_.positions.data(), layer);
  for (std::uint32_t i = 0; by_device && i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.kind != AS_TAP_TENSOR || tap.direction != AS_TAP_IN) continue;
    const as_tensor& tensor = dressed.tensor(tap.offset);
    if (tensor.data != params.tensor(tap.offset).data) device_->residency().host_wrote(tensor);
  }
  return &dressed;
}

Result<void> Session::probe_nan_codes(int layer, const OpParams& params, const as_call& call) {
  const as_op_id id = params.op();
  if (!parts_.adversarial_lists || id != AS_OP_SPARSE_ATTENTION || change_ != nullptr ||
      verifier_->references() == References::kNone) {
    return {};
  }
  auto number = adversarial_.read_nan_codes(params, lanes_.function(id), call);
  if (!number) return number.error();
  if (*number) verifier_->read_nan_codes(layer, params, lanes_.lane(id), std::move(**number));
  return {};
}

Result<void> Session::run_changed(int layer, const OpParams& params, const as_call& call) {
  const as_op_id id = params.op();
  const std::string& lane = lanes_.lane(id);
  const bool by_device = device_ && params.info().phase != AS_PHASE_BEFORE;
  if (by_device) {
    verifier_->inputs_changed();  // it runs on the host
    if (auto ok = device_->residency().before_host_op(params); !ok) return ok;
  }
  const auto own_lane = [&](const OpParams& changed) -> Result<void> {
    if (by_device && lane == DeviceRun::kLane) {
      return usage_error(fmt::format("{} runs on the device: its inputs cannot be changed", lane),
                         "change who computes it: lane cpu, fp32 accumulation");
    }
    return call_op(lanes_.function(id), changed.data(), call);
  };
  auto ran = change_->run(layer, params, own_lane);
  if (ran && by_device) device_->residency().after_host_op(params);
  return ran;
}

}  // namespace attnscope
