// Work that takes seconds or minutes and ends early where somebody asks it to, on another thread.
#pragma once

#include <atomic>

#include "kernels/params/result.h"

namespace attnscope {

// stop: nullptr = nobody can.
inline bool is_stopped(const std::atomic<bool>* stop) { return stop != nullptr && *stop; }
inline Error stopped_error() { return usage_error("it was stopped", "run it again"); }

}  // namespace attnscope
