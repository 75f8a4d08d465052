#include "engine/sched/drafter.h"

#include <algorithm>

#include "engine/model/model_config.h"

namespace attnscope {

std::vector<std::int32_t> Drafter::draft(std::int32_t request, std::int64_t num_tokens,
                                         std::int64_t most, std::int64_t turn) const {
  const std::vector<std::int32_t>& all = known[static_cast<std::size_t>(request)];
  const auto size = static_cast<std::int64_t>(all.size());
  const std::int64_t count = std::min({options.tokens, most, size - num_tokens});
  if (count <= 0) return {};
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(num_tokens);
  std::vector<std::int32_t> drafts(first, first + static_cast<std::ptrdiff_t>(count));
  if (options.accept.empty()) return drafts;
  const auto pattern = static_cast<std::size_t>(turn) % options.accept.size();
  const std::int64_t right = options.accept[pattern];
  if (right < count) {
    std::int32_t& wrong = drafts[static_cast<std::size_t>(right)];
    wrong = (wrong + 1) % vocabulary;
  }
  return drafts;
}

std::size_t right_drafts(std::span<const std::int32_t> drafts,
                         std::span<const std::int32_t> sampled) {
  return static_cast<std::size_t>(std::ranges::mismatch(drafts, sampled).in1 - drafts.begin());
}

}  // namespace attnscope
