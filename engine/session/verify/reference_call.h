// Small questions about taps and calls that the parts of the verifier share.
#pragma once

#include "engine/session/step/op_params.h"
#include "engine/trace/compare.h"
#include "kernels/params/lane_table.h"
#include "kernels/params/result.h"

namespace attnscope {

// Calls a reference; an error says which one and which op.
Result<void> call_reference(const Lane* lane, const OpParams& params, const as_call& how);

// Numbers that a quantiser puts out with the scale of its codes in them.
bool carries_scale(const as_tap_info& tap, const as_tensor& value);

// params: a struct of the op. Which elements of its tap hold values.
TapMask mask_of(const void* params, const as_tap_info& tap);

}  // namespace attnscope
