// A trace whose large tensors lie where they cost no memory until somebody looks at them.
#pragma once

#include <memory>

#include "engine/io/resting_memory.h"
#include "engine/session/step/step_trace.h"

namespace attnscope {

// The same step, with the same bytes. Null: there is nothing large in it, or no file to put it in.
// Throws std::bad_alloc.
std::shared_ptr<const StepTrace> resting(const StepTrace& trace,
                                         const std::shared_ptr<RestingFile>& file);

}  // namespace attnscope
