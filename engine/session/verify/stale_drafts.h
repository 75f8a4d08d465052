// Rows of a draft layer that a request takes over from others. Such a row is made of its token and
// of the one behind, so that whoever takes it over must go on with the same one.
//
// Of a flagged group the block behind a hit was found too. The last row of a block is of another
// token nevertheless where several requests have computed the same block and went on differently.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/cache/cache_layout.h"
#include "engine/model/model_config.h"
#include "engine/model/numbers.h"
#include "engine/sched/serving.h"

namespace attnscope {

struct StaleDraft {
  std::int32_t request = -1, donor = -1, group = -1;
  std::int64_t position = 0;  // of the row
};
// Of those who joined in this step.
inline std::vector<StaleDraft> stale_drafts(const ModelConfig& config, const CacheLayout& layout,
                                            const Serving& serving) {
  std::vector<StaleDraft> stale;
  const auto drafts = [&](std::int32_t group) {
    const std::vector<int>& specs = layout.groups[to_size(group)].specs;
    return std::ranges::any_of(
        specs, [&](int s) { return config.is_draft(layout.specs[to_size(s)].layer); });
  };
  for (const SharedBlock& b : serving.step().shared) {
    if (config.draft_layers == 0 || b.donor < 0 || !drafts(b.group)) continue;
    const std::int64_t behind =
        std::int64_t{b.index + 1} * layout.groups[to_size(b.group)].block_tokens;
    const std::vector<std::int32_t>& own = serving.requests()[to_size(b.request)].tokens;
    const std::vector<std::int32_t>& donor = serving.requests()[to_size(b.donor)].tokens;
    if (to_size(behind) < std::min(own.size(), donor.size()) &&
        donor[to_size(behind)] == own[to_size(behind)]) {
      continue;
    }
    stale.push_back({b.request, b.donor, b.group, behind - 1});
  }
  return stale;
}

}  // namespace attnscope
