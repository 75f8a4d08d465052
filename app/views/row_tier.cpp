#include "app/views/row_tier.h"

#include <algorithm>

#include "engine/family/family.h"

namespace attnscope {

std::string row_tier(const SessionInfo& info, const StepTrace& step, std::int32_t request,
                     int group) {
  if (!info.config.host_rows) return {};
  const Family& family = family_of(info.config);
  bool selected_from = false;
  for (int i = 0; i < info.config.num_layers(); ++i) {
    selected_from = selected_from || (family.selects(info.config, i) &&
                                      info.layout.find(i, CacheId{})->group == group);
  }
  if (!selected_from) return {};
  const StepMetadata& m = step.metadata;
  const auto row = std::ranges::find(m.live, request) - m.live.begin();
  const auto r = static_cast<std::size_t>(row);
  if (r >= m.live.size() || r >= m.num_scheduled_tokens.size()) return {};
  const auto sampled = std::ranges::count(m.sample_request, static_cast<std::int32_t>(row));
  const bool decodes =
      m.num_computed[r] >= info.prompt_tokens.at(static_cast<std::size_t>(request)) &&
      sampled == m.num_scheduled_tokens[r];
  return decodes ? "host" : "device";
}

}  // namespace attnscope
