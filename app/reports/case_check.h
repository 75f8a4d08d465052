// Whether a case that was kept is the call that ran.
#pragma once

#include "engine/backend/registry.h"
#include "engine/opcase/op_case.h"

namespace attnscope {

// The lane that ran the call runs the case: kernels of the host give the same again. AS_INTERNAL
// says what they do not. Of other lanes nothing is known.
Result<void> check_kept(const OpCase& kept, const LaneRegistry& lanes);

}  // namespace attnscope
