// The kernels behind a call, found by capturing it: nothing runs.
#pragma once

#include <functional>

#include "kernels/cuda/device.h"
#include "kernels/params/kernel_launch.h"

namespace attnscope::cuda {

// Of what `work` puts on the stream, in order. Workspaces must have their final size: run it once
// before. AS_NO_ENVIRONMENT where work cannot be captured or the driver does not tell.
Result<OpLaunches> launches_of(const Stream& stream, const std::function<Result<void>()>& work);

}  // namespace attnscope::cuda
