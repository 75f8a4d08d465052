// A session's GPU: which ops it runs, single ops on mirrored tensors or decode steps by plan, and
// what of it the host gets to see.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/session/device/decode_plan.h"

namespace attnscope {

class DeviceRun {
 public:
  // The lane whose ops take tensors of the device.
  static constexpr const char* kLane = "cuda";
  static bool wanted(const LaneSelector& lanes);

  // most: the largest step of the session; its tokens are left open. serial: all on one stream.
  static Result<std::unique_ptr<DeviceRun>> make(std::shared_ptr<ComputeDevice> device,
                                                 const SessionParts& parts, Slab& slab,
                                                 const PlanShape& most, bool serial);

  // Once a step's tables are known.
  void begin_step(const StepMetadata& step) { residency_->begin_step(step.tables); }
  // Before the first layer's first op: chooses a plan where the step is one of decoding and every
  // op is its lane's. whole: launch() follows where there is a plan.
  Result<void> begin_layers(const StepMetadata& step, const as_tensor& hidden,
                            const LaneSelector& lanes, bool may_plan, bool whole);
  // Whether a launch makes slots and lists as well: then begin_layers() may come before them.
  static bool makes_lists(const ModelGraph& graph, const LaneSelector& lanes);

  // Runs an op of a layer or of the head in its lane. seen: inputs and outputs are on the host
  // afterwards, outputs had started as NaN. launches: gets the kernels, where the device ran it;
  // nullptr = nobody asks.
  Result<void> run(const std::string& lane, as_op_fn function, int layer, const OpParams& params,
                   const as_call& host_call, bool seen, OpLaunches* launches);
  // Runs an op that is none of the session's own; its tensors stay where they are.
  Result<void> run_beside(const std::string& lane, as_op_fn function, const OpParams& params,
                          const as_call& host_call);
  // Runs the call of an op for some tokens: a part of what run() would do, whose rest has run or
  // follows.
  Result<void> run_part(const std::string& lane, as_op_fn function, const OpParams& params,
                        TokenPart tokens, const as_call& host_call);
  // Runs exchange_rows of a layer beside `meanwhile`, which runs before it where a lane of the host
  // moves the rows.
  Result<void> travel(const std::string& lane, as_op_fn function, int layer, const OpParams& params,
                      const as_call& host_call, const std::function<Result<void>()>& meanwhile);
  // Inputs and outputs of an op that ran in parts are on the host afterwards.
  Result<void> show(const OpParams& params);
  // The rows to sample from, hidden[rows], into `last`.
  Result<void> gather(const as_tensor& hidden, const std::vector<std::int64_t>& rows,
                      const as_tensor& last);
  // Whether the step has a plan: then launch() starts all layers and the head at once, and after
  // finish() the sampled tokens are on the host, and slots and lists where they were made. timed:
  // their times will be taken.
  bool planned() const { return plan_ != nullptr; }
  Result<void> launch(bool timed) { return plan_->launch(timed); }
  Result<void> finish(StepMetadata& step, const as_tensor& sampled) {
    return plan_->finish(step, sampled);
  }

  // Times of the ops that were timed on the device since the last call, in order.
  Result<std::vector<DecodePlan::Timed>> take_times();

  Residency& residency() { return *residency_; }

 private:
  void look_at(as_op_fn function, int layer, const OpParams& params, OpLaunches& launches);
  Result<void> run_on_host(as_op_fn function, const OpParams& params, const as_call& call);

  DeviceRun(const SessionParts& parts, const Slab& slab, const PlanShape& most, bool serial)
      : parts_(parts), slab_(slab), most_(most), serial_(serial) {}

  const SessionParts& parts_;
  const Slab& slab_;
  PlanShape most_;
  bool serial_;
  std::unique_ptr<Residency> residency_;
  // By padded tokens, and whether they make lists.
  std::map<std::pair<std::int64_t, bool>, std::unique_ptr<DecodePlan>> plans_;
  DecodePlan* plan_ = nullptr;  // of this step
  struct Ran {
    as_op_id op;  // AS_OP_COUNT: beside the session's own
    int layer;
  };
  std::vector<Ran> ran_;  // single ops since take_times
};

}  // namespace attnscope
