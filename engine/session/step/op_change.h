// Ops computed otherwise than their lanes would, from some op on: Session::change_ops.
#pragma once

#include <functional>

#include "engine/session/step/op_params.h"
#include "kernels/params/result.h"

namespace attnscope {

class OpChange {
 public:
  // Runs the op's own lane on changed inputs; the outputs are the op's.
  using OwnLane = std::function<Result<void>(const OpParams&)>;

  virtual ~OpChange() = default;
  // Whether the op that the session is about to run is one of those. layer: running index, -1
  // outside.
  virtual bool changes(as_op_id op, int layer) const = 0;
  // In place of its lane: writes every output of params.
  virtual Result<void> run(int layer, const OpParams& params, const OwnLane& lane) = 0;
  // The same op of a free-running reference, about to run.
  virtual void change_reference(int layer, bool exact, OpParams& params) = 0;
};

}  // namespace attnscope
