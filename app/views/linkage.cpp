#include "app/views/linkage.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "engine/family/family.h"
#include "engine/family/models.h"

namespace attnscope {
namespace {

// Ratios of a group's rows, ascending: 1 for window and state rows, 4 and 128 for entries.
std::vector<int> ratios_of(const CacheLayout& layout, const CacheGroup& group) {
  std::set<int> ratios;
  for (const int spec : group.specs) {
    const CacheSpec& s = layout.specs[static_cast<std::size_t>(spec)];
    ratios.insert(s.tokens_per_row);
  }
  return {ratios.begin(), ratios.end()};
}

TokenSlot locate_in(const CacheGroup& group, int group_index, int ratio,
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

const CacheGroup& group_of(const SessionInfo& info, const BlockContents& contents) {
  return info.layout.groups[static_cast<std::size_t>(contents.group)];
}

// What lists of slots in the group's blocks are of.
CacheId first_cache(const SessionInfo& info, const BlockContents& contents) {
  return info.layout.specs[static_cast<std::size_t>(group_of(info, contents).specs.front())].id;
}

// Tokens whose window list names a row of the block.
void add_window_readers(const SessionInfo& info, const StepTrace& step, std::int64_t list,
                        const BlockContents& contents, std::int32_t block,
                        std::set<std::int32_t>& readers) {
  const StepMetadata& m = step.metadata;
  const StepTensor* lists = m.lists_of(first_cache(info, contents));
  if (lists == nullptr) return;
  const std::vector<std::int32_t>& lengths =
      m.own[static_cast<std::size_t>(lists->lengths)].numbers;
  const std::int64_t window = info.config.window;
  const std::int64_t rows = group_of(info, contents).block_tokens;
  const std::int64_t first = list * m.num_tokens_in_step() * window;
  for (const std::int32_t t : step.kept) {
    const std::int64_t end = first + (t + 1) * window;
    if (end > static_cast<std::int64_t>(lists->numbers.size())) return;
    // Lengths come from lanes, perhaps from wrong ones.
    const std::int64_t len =
        std::clamp<std::int64_t>(lengths[static_cast<std::size_t>(t)], 0, window);
    if (lists_block(lists->numbers, end - window, len, rows, block)) readers.insert(t);
  }
}

// The cache that an op of a layer reads through a block table; nullptr.
const CacheSpec* read_through(const SessionInfo& info, const Place& place) {
  const auto layer = std::ranges::find(info.config.layers, place.layer);
  if (layer == info.config.layers.end()) return nullptr;
  return info.layout.find(static_cast<int>(layer - info.config.layers.begin()),
                          table_cache(place.op));
}

// Tokens whose list of all entries, or of those that were selected in some layer, names a row of
// the block.
void add_entry_readers(const SessionInfo& info, const StepTrace& step,
                       const BlockContents& contents, std::int32_t block,
                       std::set<std::int32_t>& readers) {
  const StepMetadata& m = step.metadata;
  const std::int64_t tokens = group_of(info, contents).block_tokens;
  const StepTensor* all = m.lists_of(first_cache(info, contents));
  const std::int64_t width = all != nullptr ? m.list_columns : 0;
  for (const std::int32_t t : step.kept) {
    const std::int64_t end = (t + 1) * width;
    if (width == 0 || end > static_cast<std::int64_t>(all->numbers.size())) break;
    const std::int64_t len = std::clamp<std::int64_t>(
        m.own[static_cast<std::size_t>(all->lengths)].numbers[static_cast<std::size_t>(t)], 0,
        width);
    if (lists_block(all->numbers, end - width, len, tokens / all->tokens_per_row, block)) {
      readers.insert(t);
    }
  }
  for (const auto& op : step.ops) {
    const CacheSpec* spec = lists_selected(op->place.op) ? read_through(info, op->place) : nullptr;
    if (spec == nullptr) continue;
    const TapCopy* slots = op->tap("slots");
    const TapCopy* lens = op->tap("lens");
    if (slots == nullptr || lens == nullptr) continue;
    for (std::size_t k = 0; k < step.kept.size(); ++k) {
      const auto row = static_cast<std::int64_t>(k);
      const auto* ids =
          static_cast<const std::int32_t*>(slots->value.data) + row * slots->value.stride[0];
      const std::int64_t len =
          static_cast<const std::int32_t*>(lens->value.data)[row * lens->value.stride[0]];
      const auto* end = ids + std::clamp<std::int64_t>(len, 0, slots->value.shape[1]);
      if (std::any_of(ids, end,
                      [&](std::int32_t s) { return s >= 0 && s / spec->rows_per_block == block; }))
        readers.insert(step.kept[k]);
    }
  }
}

// Tokens that complete an entry pool it from the state rows of the window that they end.
void add_state_readers(const SessionInfo& info, const StepTrace& step,
                       const BlockContents& contents, std::set<std::int32_t>& readers) {
  const StepMetadata& m = step.metadata;
  const CacheGroup& group = group_of(info, contents);
  const CacheSpec& states = info.layout.specs[static_cast<std::size_t>(group.specs.front())];
  const CacheSpec* entries = entries_of(info.layout, states.layer);
  if (entries == nullptr) return;
  for (const std::int32_t t : step.kept) {
    const std::int64_t position = m.positions[static_cast<std::size_t>(t)];
    if (step.request_of(t) != contents.request || (position + 1) % entries->tokens_per_row != 0)
      continue;
    if (contents.tokens.begin <= position && contents.tokens.end > position + 1 - group.window) {
      readers.insert(t);
    }
  }
}

// holders: by their tables; where none is known, the owner's.
std::string state_words(const SessionInfo& info, const BlockOwner& owner,
                        std::vector<std::int32_t> holders) {
  if (owner.request < 0 && owner.refs == 0) {
    return owner.keyed ? "free, a lookup still finds it" : "free";
  }
  if (holders.empty()) holders.push_back(owner.request);
  std::string text = "held by ";
  for (std::size_t i = 0; i < holders.size(); ++i) {
    text += i == 0 ? "" : i + 1 == holders.size() ? " and " : ", ";
    text += name_if_known(info, holders[i]);
  }
  const auto others = owner.refs - static_cast<std::int32_t>(holders.size());
  if (holders.size() == 1 && others > 0) text += fmt::format(" and {} more", others);
  return text + (owner.keyed ? ", a lookup finds it" : "");
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
      slots.push_back(locate_in(group, static_cast<int>(g), ratio, table, position));
    }
  }
  return slots;
}

const RequestView* find_request(const StepTrace& step, std::int32_t id) {
  const auto found = std::find_if(step.requests.begin(), step.requests.end(),
                                  [&](const RequestView& r) { return r.request.id == id; });
  return found == step.requests.end() ? nullptr : &*found;
}

std::string name_if_known(const SessionInfo& info, std::int64_t id) {
  const auto i = static_cast<std::size_t>(id);
  return id >= 0 && i < info.request_names.size() ? info.request_names[i] : "?";
}

std::string request_name(const SessionInfo& info, std::int32_t id) {
  const auto i = static_cast<std::size_t>(id);
  return id >= 0 && i < info.request_names.size() ? info.request_names[i] : std::to_string(id);
}

std::int64_t length_in_step(const StepTrace& step, const RequestView& request) {
  std::int64_t length = request.request.computed;
  const StepMetadata& m = step.metadata;
  for (std::size_t row = 0; row < std::min(m.live.size(), m.seq_lens.size()); ++row) {
    if (m.live[row] == request.request.id) length = std::max<std::int64_t>(length, m.seq_lens[row]);
  }
  return length;
}

std::vector<std::int32_t> holders_of(const StepTrace& step, std::int32_t block) {
  std::vector<std::int32_t> holders;
  for (const RequestView& request : step.requests) {
    const bool holds = std::ranges::any_of(request.tables, [&](const auto& table) {
      return std::ranges::find(table, block) != table.end();
    });
    if (holds) holders.push_back(request.request.id);
  }
  return holders;
}

std::string block_state(const SessionInfo& info, const StepTrace& step, std::int32_t block) {
  if (block == 0) return "the null block";
  if (block < 0 || static_cast<std::size_t>(block) >= step.owners.size()) return "not in this pool";
  const BlockOwner& owner = step.owners[static_cast<std::size_t>(block)];
  return state_words(info, owner, holders_of(step, block));
}

std::string owner_state(const SessionInfo& info, const BlockOwner& owner) {
  return state_words(info, owner, {});
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
  if (const RequestView* request = find_request(step, owner.request)) {
    contents.tokens.end =
        std::clamp(length_in_step(step, *request), contents.tokens.begin, contents.tokens.end);
  }
  contents.fresh = std::find(step.fresh.begin(), step.fresh.end(), block) != step.fresh.end();
  return contents;
}

namespace {

// Whether its rows are found by position, through the table alone: keys and values.
bool found_by_position(const SessionInfo& info, int group) {
  const auto& specs = info.layout.groups[static_cast<std::size_t>(group)].specs;
  return std::ranges::any_of(specs, [&](int s) {
    return info.layout.specs[static_cast<std::size_t>(s)].id.role == AS_CACHE_K;
  });
}

// Tokens that see a row of the block: at its positions or behind, and within a window of them, or
// in their chunk.
void add_readers_by_position(const SessionInfo& info, const StepTrace& step, int group,
                             std::int32_t block, std::set<std::int32_t>& readers) {
  const CacheGroup& own = info.layout.groups[static_cast<std::size_t>(group)];
  for (const RequestView& request : step.requests) {
    if (static_cast<std::size_t>(group) >= request.tables.size()) continue;
    const auto& table = request.tables[static_cast<std::size_t>(group)];
    const auto at = std::ranges::find(table, block);
    if (at == table.end()) continue;
    const std::int64_t begin = (at - table.begin()) * own.block_tokens;
    for (const std::int32_t t : step.kept) {
      const std::int64_t position = step.metadata.positions[static_cast<std::size_t>(t)];
      const bool sees = own.first_seen(position) < begin + own.block_tokens;
      if (step.request_of(t) == request.request.id && position >= begin && sees) readers.insert(t);
    }
  }
}

}  // namespace

std::vector<std::int32_t> readers_of_block(const SessionInfo& info, const StepTrace& step,
                                           std::int32_t block) {
  const auto contents = contents_of_block(info, step, block);
  if (!contents) return {};
  std::set<std::int32_t> readers;
  const auto& swa = info.layout.swa_groups;
  const auto list = std::find(swa.begin(), swa.end(), contents->group);
  if (found_by_position(info, contents->group)) {
    add_readers_by_position(info, step, contents->group, block, readers);
  } else if (list != swa.end()) {
    add_window_readers(info, step, list - swa.begin(), *contents, block, readers);
  } else if (contents->group == info.layout.mla_group) {
    add_entry_readers(info, step, *contents, block, readers);
  } else {
    add_state_readers(info, step, *contents, readers);
  }
  return {readers.begin(), readers.end()};
}

std::int64_t position_of_slot(const SessionInfo& info, const StepTrace& step, std::int32_t request,
                              int group, std::int64_t slot) {
  const std::int64_t rows = info.layout.groups[static_cast<std::size_t>(group)].block_tokens;
  if (slot < 0 || static_cast<std::size_t>(slot / rows) >= step.owners.size()) return -1;
  const BlockOwner& owner = step.owners[static_cast<std::size_t>(slot / rows)];
  if (owner.request != request || owner.group != group) return -1;
  return owner.index * rows + slot % rows;
}

int tokens_per_entry(const SessionInfo& info, int running_layer) {
  const CacheSpec* entries = entries_of(info.layout, running_layer);
  if (entries != nullptr) return entries->tokens_per_row;
  return layer_selects(info.config, running_layer) ? 1 : 0;  // tokens, one by one
}

TokenRange tokens_of_entry(const CacheLayout& layout, int ratio, std::int64_t entry) {
  const std::int64_t end = (entry + 1) * ratio;
  return {std::max<std::int64_t>(end - tokens_pooled(layout, ratio), 0), end};
}

std::vector<std::int64_t> entries_of_token(const CacheLayout& layout, int ratio,
                                           std::int64_t position) {
  std::vector<std::int64_t> entries;
  if (position < 0) return entries;
  const std::int64_t end = (position + tokens_pooled(layout, ratio)) / ratio;
  for (std::int64_t entry = position / ratio; entry < end; ++entry) entries.push_back(entry);
  return entries;
}

TokenSlot slot_of_entry(const SessionInfo& info, const RequestView& request, int ratio,
                        std::int64_t entry) {
  const int g = info.layout.mla_group;
  if (g < 0 || entry < 0 || static_cast<std::size_t>(g) >= request.tables.size()) return {};
  return locate_in(info.layout.groups[static_cast<std::size_t>(g)], g, ratio,
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

std::int64_t step_that_computed(const Snapshot& snapshot, std::int32_t request,
                                std::int64_t position) {
  for (auto it = snapshot.steps.rbegin(); it != snapshot.steps.rend(); ++it) {
    if ((*it)->writes == nullptr) continue;
    const StepWrites& writes = *(*it)->writes;
    for (std::size_t i = 0; i < writes.requests.size(); ++i) {
      if (writes.requests[i] == request && writes.positions[i] == position) return (*it)->step;
    }
  }
  return -1;
}

}  // namespace attnscope
