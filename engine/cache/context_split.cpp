#include "engine/cache/context_split.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/cache/dealt_cache.h"
#include "engine/model/numbers.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {

std::int64_t ContextSplit::length(int rank, std::int64_t tokens) const {
  const std::int64_t whole = tokens / round() * interleave;
  const std::int64_t rest = tokens % round() - std::int64_t{rank} * interleave;
  return whole + std::clamp<std::int64_t>(rest, 0, interleave);
}

Result<void> check_split(const CacheLayout& layout, const ContextSplit& split) {
  if (split.ranks < 1 || split.ranks > kMostContextRanks || split.interleave < 1) {
    return bad_input(fmt::format("a cache cannot be dealt out to {} ranks by {} tokens",
                                 split.ranks, split.interleave),
                     fmt::format("allowed: 1 to {} ranks, 1 token or more", kMostContextRanks));
  }
  if (!split.splits()) return {};
  for (const CacheSpec& spec : layout.specs) {
    if (!is_dealt(spec) || spec.rows_per_block % split.round() == 0) continue;
    const bool entries = spec.tokens_per_row > 1;
    const char* what = entries ? "entries" : "tokens";
    const std::string& group = layout.groups[to_size(spec.group)].name;
    return bad_input(
        fmt::format("blocks of {} {} ({}) cannot be dealt out to {} ranks by {}: {} are no "
                    "whole rounds of {}",
                    spec.rows_per_block, what, entries ? spec.name + ", " + group : group,
                    split.ranks,
                    split.interleave == 1 ? fmt::format("one {}", entries ? "entry" : "token")
                                          : fmt::format("{} {}", split.interleave, what),
                    spec.rows_per_block, split.round()),
        fmt::format("ranks times interleave has to divide {}: take fewer ranks, a smaller "
                    "interleave, or larger blocks",
                    spec.rows_per_block));
  }
  return {};
}

CacheLayout rank_layout(CacheLayout layout, const ContextSplit& split) {
  layout.block_stride = 0;
  for (CacheGroup& group : layout.groups) {
    group.bytes = 0;
    for (const int index : group.specs) {
      CacheSpec& spec = layout.specs[to_size(index)];
      if (is_dealt(spec)) spec.rows_per_block /= split.ranks;
      spec.page_bytes = spec.rows().page;
      spec.offset = group.bytes;
      group.bytes += spec.page_bytes;
    }
    layout.block_stride = std::max(layout.block_stride, group.bytes);
  }
  layout.ranks = 1;
  return layout;
}

RankSlots rank_slots(const ContextSplit& split, const std::vector<std::int64_t>& positions,
                     const std::vector<std::int32_t>& token_to_req, const as_tensor& table,
                     int block_tokens, int tokens_per_row) {
  RankSlots slots(to_size(split.ranks), std::vector<std::int64_t>(positions.size(), -1));
  const std::int64_t rows = block_tokens / tokens_per_row / split.ranks;  // of a rank's page
  for (std::size_t t = 0; t < positions.size(); ++t) {
    if (token_to_req[t] < 0 || (positions[t] + 1) % tokens_per_row != 0) continue;
    const std::int64_t column = positions[t] / block_tokens;
    if (column >= table.shape[1]) continue;
    const std::int32_t block = *at<std::int32_t>(table, token_to_req[t], column);
    if (block <= AS_NULL_BLOCK) continue;
    const std::int64_t row = positions[t] / tokens_per_row;
    slots[to_size(split.owner(row))][t] = std::int64_t{block} * rows + split.row(row) % rows;
  }
  return slots;
}

}  // namespace attnscope
