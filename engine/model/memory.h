// How much memory a session will touch, and how much the machine has, so that a model too large is
// refused with a sentence instead of being killed.
#pragma once

#include <cstdint>

#include "kernels/params/result.h"

namespace attnscope {

// MemAvailable of the system; -1 where it cannot be read.
std::int64_t available_memory();

// AS_NO_ENVIRONMENT when `needed` bytes exceed what is available.
Result<void> check_memory(std::int64_t needed);

}  // namespace attnscope
