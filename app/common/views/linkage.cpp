#include "app/common/views/linkage.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace attnscope {
namespace {

// Ratios of a group's rows, ascending: 1 for window and state rows, 4 and 128 for entries.
std::vector<int> ratios_of(const CacheLayout& layout, const CacheGroup& group) {
  std::set<int> ratios;
  for (const int spec : group.specs) {
    const CacheSpec& s = layout.specs[static_cast<std::size_t>(spec)];
    ratios.insert(s.block_tokens / s.rows_per_block);
  }
  return {ratios.begin(), ratios.end()};
}

TokenSlot locate(const CacheGroup& group, int group_index, int ratio,
                 const std::vector<std::int32_t>& table, std::int64_t position) {
  TokenSlot slot;
  slot.group = group_index;
  slot.ratio = ratio;
  if (ratio > 1) slot.entry = position / ratio;
  slot.index = static_cast<std::int32_t>(position / group.block_tokens);
  const int rows = group.block_tokens / ratio;
  slot.row = static_cast<std::int32_t>(position % group.block_tokens / ratio);
  if (slot.index < 0 || static_cast<std::size_t>(slot.index) >= table.size()) return slot;
  slot.block = table[static_cast<std::size_t>(slot.index)];
  if (slot.block > 0) slot.slot = static_cast<std::int64_t>(slot.block) * rows + slot.row;
  return slot;
}

bool lists_block(const std::vector<std::int32_t>& slots, std::int64_t begin, std::int64_t count,
                 std::int64_t rows, std::int32_t block) {
  for (std::int64_t i = begin; i < begin + count; ++i) {
    const std::int32_t slot = slots[static_cast<std::size_t>(i)];
    if (slot >= 0 && slot / rows == block) return true;
  }
  return false;
}

}  // namespace

std::vector<TokenSlot> slots_of_token(const SessionInfo& info, const RequestView& request,
                                      std::int64_t position) {
  std::vector<TokenSlot> slots;
  if (position < 0) return slots;
  static const std::vector<std::int32_t> kNoTable;
  for (std::size_t g = 0; g < info.layout.groups.size(); ++g) {
    const CacheGroup& group = info.layout.groups[g];
    const auto& table = g < request.tables.size() ? request.tables[g] : kNoTable;
    for (const int ratio : ratios_of(info.layout, group)) {
      slots.push_back(locate(group, static_cast<int>(g), ratio, table, position));
    }
  }
  return slots;
}

std::optional<BlockContents> contents_of_block(const SessionInfo& info, const StepTrace& step,
                                               std::int32_t block) {
  if (block <= 0 || static_cast<std::size_t>(block) >= step.owners.size()) return std::nullopt;
  const BlockOwner& owner = step.owners[static_cast<std::size_t>(block)];
  if (owner.request < 0 || owner.group < 0) return std::nullopt;
  BlockContents contents;
  contents.request = owner.request;
  contents.group = owner.group;
  contents.index = owner.index;
  const std::int64_t tokens =
      info.layout.groups[static_cast<std::size_t>(owner.group)].block_tokens;
  contents.tokens = {owner.index * tokens, (owner.index + 1) * tokens};
  for (const RequestView& view : step.requests) {
    if (view.request.id != owner.request) continue;
    // Rows exist for what was computed up to this step; the tokens after it are not there yet.
    std::int64_t length = view.request.computed;
    for (std::size_t row = 0; row < step.metadata.live.size(); ++row) {
      if (step.metadata.live[row] == owner.request && row < step.metadata.seq_lens.size()) {
        length = std::max<std::int64_t>(length, step.metadata.seq_lens[row]);
      }
    }
    contents.tokens.end = std::clamp(contents.tokens.end, contents.tokens.begin,
                                     std::max(contents.tokens.begin, length));
  }
  contents.fresh = std::find(step.fresh.begin(), step.fresh.end(), block) != step.fresh.end();
  return contents;
}

std::vector<std::int32_t> readers_of_block(const SessionInfo& info, const StepTrace& step,
                                           std::int32_t block) {
  std::set<std::int32_t> readers;
  const auto owner = contents_of_block(info, step, block);
  if (!owner) return {};
  const CacheLayout& layout = info.layout;
  const StepMetadata& m = step.metadata;
  const auto tokens = static_cast<std::int64_t>(m.positions.size());
  const auto& swa = layout.swa_groups;
  const auto list = std::find(swa.begin(), swa.end(), owner->group);
  if (list != swa.end() && !m.swa_indices.empty()) {
    const std::int64_t window = info.config.window;
    const std::int64_t first = (list - swa.begin()) * tokens * window;
    const std::int64_t rows = layout.groups[static_cast<std::size_t>(owner->group)].block_tokens;
    for (const std::int32_t t : step.kept) {
      const std::int64_t len = m.swa_lens[static_cast<std::size_t>(t)];
      if (lists_block(m.swa_indices, first + t * window, len, rows, block)) readers.insert(t);
    }
  }
  if (owner->group == layout.mla_group) {
    const std::int64_t block_tokens =
        layout.groups[static_cast<std::size_t>(layout.mla_group)].block_tokens;
    if (!m.c128_indices.empty()) {
      for (const std::int32_t t : step.kept) {
        const std::int64_t len = m.c128_lens[static_cast<std::size_t>(t)];
        if (lists_block(m.c128_indices, t * m.c128_width, len, block_tokens / 128, block)) {
          readers.insert(t);
        }
      }
    }
    for (const auto& op : step.ops) {
      if (op->place.op != AS_OP_TOPK_TO_SLOTS) continue;
      const TapCopy* slots = op->tap("slots");
      const TapCopy* lens = op->tap("lens");
      if (slots == nullptr || lens == nullptr) continue;
      for (std::size_t k = 0; k < step.kept.size(); ++k) {
        const auto row = static_cast<std::int64_t>(k);
        const auto* ids =
            static_cast<const std::int32_t*>(slots->value.data) + row * slots->value.stride[0];
        const std::int32_t len =
            static_cast<const std::int32_t*>(lens->value.data)[row * lens->value.stride[0]];
        for (std::int32_t i = 0; i < len && i < slots->value.shape[1]; ++i) {
          if (ids[i] >= 0 && ids[i] / (block_tokens / 4) == block) {
            readers.insert(step.kept[k]);
            break;
          }
        }
      }
    }
  }
  return {readers.begin(), readers.end()};
}

TokenRange tokens_of_entry(int ratio, std::int64_t entry) {
  // Ratio 4 overlaps: an entry also pools the four tokens before its own.
  const std::int64_t begin = entry * ratio - (ratio == 4 ? ratio : 0);
  return {std::max<std::int64_t>(begin, 0), (entry + 1) * ratio};
}

TokenSlot slot_of_entry(const SessionInfo& info, const RequestView& request, int ratio,
                        std::int64_t entry) {
  const int g = info.layout.mla_group;
  if (g < 0 || entry < 0 || static_cast<std::size_t>(g) >= request.tables.size()) return {};
  return locate(info.layout.groups[static_cast<std::size_t>(g)], g, ratio,
                request.tables[static_cast<std::size_t>(g)], entry * ratio);
}

std::string text_of(const Request& request, TokenRange range, std::size_t limit) {
  std::string text;
  const auto end = std::min(range.end, request.num_tokens());
  for (std::int64_t i = std::max<std::int64_t>(range.begin, 0); i < end; ++i) {
    const std::int32_t token = request.tokens[static_cast<std::size_t>(i)];
    std::string piece;
    if (token == '\n') {
      piece = "\\n";
    } else if (token == '\t') {
      piece = "\\t";
    } else if (token >= 32 && token < 127) {
      piece = std::string(1, static_cast<char>(token));
    } else {
      piece = fmt::format("\\x{:02x}", token & 255);
    }
    if (text.size() + piece.size() > limit) return text + "…";
    text += piece;
  }
  return text;
}

}  // namespace attnscope
