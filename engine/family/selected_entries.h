// What a model's layers select from: how many tokens one of those entries stands for.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/cache/cache_layout.h"
#include "engine/family/family.h"

namespace attnscope {

// 1 of a model that selects nothing.
inline std::int64_t tokens_of_selected(const ModelConfig& config) {
  const auto own = family_of(config).step_tensors(config, CacheLayout());
  const auto from = std::ranges::find(own, true, &StepTensor::selected_from);
  return from == own.end() ? 1 : std::max<std::int64_t>(1, from->tokens_per_row);
}

}  // namespace attnscope
