// A case of an op that a capture recorded in full.
#pragma once

#include "engine/capture/capture.h"
#include "engine/opcase/op_case.h"

namespace attnscope {

// Ops of tensors alone: of caches and rotary tables a capture does not hold what an op read.
// AS_BAD_INPUT says what is missing and how to record it, or how to save the case instead.
Result<OpCase> case_of_capture(const Capture& capture, const Place& place);

}  // namespace attnscope
