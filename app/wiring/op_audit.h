// What the ops of a session are given, held against what ref.model computes by, one by one: which
// weight of a checkpoint each reads, the numbers of its params, its rotary table, which op's output
// lies in each of its inputs, and the pages of its layer. A kernel is right on whatever it is
// given, and the references take what the session hands them: that it is the right thing shows here
// alone.
//
// Each family states it once more, apart from the graph that makes the wiring (engine/family/).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/model_config.h"
#include "engine/session/step/op_params.h"
#include "engine/tensorfile/tensor_file.h"

namespace attnscope {

class Session;

// An op that was given something else.
struct WrongWire {
  as_op_id op = AS_OP_SCHEDULE;
  int layer = -1;    // index among the running layers
  std::string what;  // a tap of the op, or a number: "sinks", "eps"
  std::string note;
};

class OpAudit {
 public:
  virtual ~OpAudit() = default;
  // Of the op that ran last.
  virtual void op_done(const Session& session) = 0;
  // Of an op that another rank ran, after the own ops of the layer.
  virtual void rank_op_done(const OpParams& params, int layer, const TensorParallel& peer) = 0;
  // Of this step, in causal order.
  virtual const std::vector<WrongWire>& found() const = 0;
};

// What audits look at.

// nullptr: the op has none of this name.
const as_tap_info* audited_tap(const OpParams& params, const char* name);
const void* audited_data(const OpParams& params, const as_tap_info& tap);
// Rows [first, first + rows) of a dense weight; of several axes all but the last are rows.
TensorEntry audited_entry(const as_tensor& t, ElementType type, std::int64_t first,
                          std::int64_t rows);
// What a step computes has no gaps, whoever reads it in another shape.
bool is_gapless(const as_tensor& t);
// A table that turns by these frequencies, angles in fp32, whose last bit weighs more where they
// are large.
bool turns_by(const as_tensor& table, const std::vector<double>& frequencies);

}  // namespace attnscope
