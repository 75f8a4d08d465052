// When an op of a step ran, and on which stream.
#pragma once

#include "kernels/params/op_ids.h"

namespace attnscope {

// One op that ran: who, where, when, how long. On a GPU: the time between two events around it
// there. Times of a step count from its first op, on a clock that stands still while references run
// and lookers look.
struct OpTiming {
  static constexpr double kNotMeasured = -1;  // an op of a step that ran as a whole, without times
  static constexpr int kMostStreams = 64;
  // No stream of a device, and a part of the op that stands behind it: messages and merges of ranks
  // that share a request; rows that come from host memory while another op runs.
  static constexpr int kExchange = kMostStreams - 1;
  as_op_id op = AS_OP_SCHEDULE;
  int layer = -1;  // published layer number
  double microseconds = 0;
  double start = kNotMeasured;  // microseconds
  int stream = 0;               // of the device: the branch of the graph that it ran on

  // Whether it has a place on the axis of its step.
  bool placed() const { return microseconds >= 0 && start >= 0; }
};

}  // namespace attnscope
