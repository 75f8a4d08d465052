// The CUDA lane as a device-resident session will call it: the tensors of a call are laid out on
// the GPU (rows and pages further apart than on the host, everything between them poisoned), the op
// runs there, twice: once directly, once from a captured graph on another stream. Both must leave
// the same bytes, and nothing but the outputs may change.
//
// As a lane it takes host tensors, so that every check of the tests can be run with it.
#pragma once

#include "engine/session/step/op_params.h"
#include "kernels/params/lane_table.h"
#include "kernels/params/result.h"

namespace attnscope::gpu_tests {

const Lane& device_lane();

// Captures a graph of the op on the tensors of `captured`, puts those of `changed` (of the same
// shapes) in their place on the GPU, replays. The outputs of `changed` get the results.
Result<void> replay_with(const OpParams& captured, const OpParams& changed);

}  // namespace attnscope::gpu_tests
