// A case of an op that a capture recorded in full.
#pragma once

#include "engine/capture/capture.h"
#include "engine/opcase/op_case.h"

namespace attnscope {

// Numbers and rotary tables follow from the capture's model, rows of caches from the steps before.
// AS_BAD_INPUT says what is missing and how to record it, or how to save the case instead.
Result<OpCase> case_of_capture(const Capture& capture, const Place& place);

}  // namespace attnscope
