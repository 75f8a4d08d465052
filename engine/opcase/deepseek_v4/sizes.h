// Sizes that the ops which compress and select take.
#pragma once

#include <span>

#include "engine/opcase/import_sizes.h"

namespace attnscope {

std::span<const AllowedSize> deepseek_v4_sizes();

}  // namespace attnscope
