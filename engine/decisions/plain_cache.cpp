#include "engine/decisions/plain_cache.h"

#include <algorithm>
#include <iterator>

namespace attnscope::plain {
namespace {

constexpr std::int32_t kNull = 0;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
std::int64_t count(const Blocks& blocks) { return static_cast<std::int64_t>(blocks.size()); }
std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

// Of so many tokens of a request: those that have rows in the group, from the first one on.
std::int64_t rows(const Group& group, std::int64_t tokens) {
  if (group.kind != Group::Kind::kFirst || tokens < group.window) return tokens;
  return group.window;
}

}  // namespace

Cache::Cache(const Rules& rules)
    : rules_(rules),
      keeps_more_(rules.groups.size(), false),
      prefixes_(std::make_shared<Prefixes>()),
      holders_(index(rules.blocks), 0),
      last_holder_(index(rules.blocks), -1),
      ticket_(index(rules.blocks), 0),
      keys_(index(rules.blocks)) {
  for (std::size_t g = 0; g < rules.groups.size(); ++g) {
    auto batch = std::find_if(batches_.begin(), batches_.end(),
                              [&](const Batch& b) { return b.kind.same_kind(rules.groups[g]); });
    if (batch == batches_.end()) batch = batches_.insert(batch, {rules.groups[g], {}, false});
    batch->groups.push_back(g);
    batch->flagged = batch->flagged || rules.groups[g].flagged;
  }
  std::stable_partition(batches_.begin(), batches_.end(),
                        [](const Batch& b) { return b.kind.kind == Group::Kind::kFull; });
  for (const Batch& batch : batches_) {
    for (const std::size_t g : batch.groups) {
      keeps_more_[g] = rules.drafts_keep_more && batch.flagged;
    }
  }
  for (auto block = static_cast<std::int32_t>(rules.first_block); block < rules.blocks; ++block) {
    line_up(block, false);
  }
}

void Cache::name_prefixes(Request& r) {
  for (;;) {
    const std::int64_t named = static_cast<std::int64_t>(r.prefixes.size()) * rules_.hash_block;
    if (named + rules_.hash_block > r.known()) return;
    const auto first = r.tokens.begin() + named;
    std::vector<Mark> marks;
    if (!r.apart.adapter.empty()) marks.emplace_back(r.apart.adapter, std::nullopt);
    for (const Media& m : r.apart.media) {
      const bool inside = m.offset < named + rules_.hash_block && m.offset + m.length > named;
      if (inside) marks.emplace_back(m.identifier, m.offset - named);
    }
    if (named == 0 && !r.apart.salt.empty()) marks.emplace_back(r.apart.salt, std::nullopt);
    r.prefixes.push_back(prefixes_->name(r.prefixes.empty() ? 0 : r.prefixes.back(),
                                         {first, first + rules_.hash_block}, marks));
  }
}

std::int64_t Cache::skipped(const Group& group, std::int64_t computed) const {
  switch (group.kind) {
    case Group::Kind::kSliding:
      return std::max<std::int64_t>(0, computed - group.window + 1);
    case Group::Kind::kChunked:
      return computed / group.window * group.window;
    case Group::Kind::kFirst:
    case Group::Kind::kFull:
      break;
  }
  return 0;
}

std::int64_t Cache::entries(const Group& group, std::int64_t tokens) {
  return ceil_div(rows(group, tokens), group.block);
}

// Most blocks that a request holds while its prompt is computed chunk by chunk.
std::optional<std::int64_t> Cache::cap(const Group& group) const {
  const std::int64_t chunk = rules_.budget * (rules_.cap_of_in_flight ? rules_.steps_in_flight : 1);
  switch (group.kind) {
    case Group::Kind::kSliding:
      return ceil_div(std::min(group.window - 1 + chunk, rules_.max_len), group.block) + 1;
    case Group::Kind::kChunked:
      return ceil_div(std::min(group.window + chunk, rules_.max_len), group.block);
    case Group::Kind::kFirst:
    case Group::Kind::kFull:
      break;
  }
  return std::nullopt;
}

// ---- lookup

Blocks Cache::entry(const Batch& batch, const Request& r, std::int64_t i) const {
  const std::int64_t prefix = r.prefixes[index((i + 1) * batch.kind.block / rules_.hash_block - 1)];
  Blocks blocks;
  for (const std::size_t g : batch.groups) {
    const auto under = found_under_.find({prefix, g});
    if (under == found_under_.end()) return {};
    blocks.push_back(under->second.front());
  }
  return blocks;
}

Cache::Found Cache::find(const Batch& batch, const Request& r, std::int64_t most, bool drop,
                         std::int64_t align) const {
  const std::int64_t block = batch.kind.block;
  const std::int64_t n = most / block;
  Found found(batch.groups.size());
  const auto resize = [&](std::int64_t length) {
    for (Blocks& blocks : found) blocks.resize(index(length), kNull);
  };
  const auto set = [&](std::int64_t i, const Blocks& hit) {
    for (std::size_t k = 0; k < found.size(); ++k) found[k][index(i)] = hit[k];
  };
  const auto length = [&] { return count(found[0]); };
  const auto cut_to_alignment = [&] {
    while (block != align && length() * block % align != 0) resize(length() - 1);
  };
  const auto give_up_last = [&] {
    if (!drop || length() == 0) return;
    resize(length() - 1);
    cut_to_alignment();
  };
  switch (batch.kind.kind) {
    case Group::Kind::kFull:
      for (std::int64_t i = 0; i < n; ++i) {
        const Blocks hit = entry(batch, r, i);
        if (hit.empty()) break;
        resize(i + 1);
        set(i, hit);
      }
      if (drop && length() > 0) resize(length() - 1);
      cut_to_alignment();
      break;
    case Group::Kind::kSliding: {
      const std::int64_t wanted = ceil_div(batch.kind.window - 1, block) + (drop ? 1 : 0);
      std::int64_t run = 0;
      bool whole = false;
      resize(n);
      for (std::int64_t i = n - 1; i >= 0 && !whole; --i) {
        const Blocks hit = entry(batch, r, i);
        if (hit.empty()) {
          run = 0;
          continue;
        }
        const std::int64_t end = (drop ? i : i + 1) * block;
        if (run == 0 && block != align && end % align != 0) continue;
        set(i, hit);
        whole = ++run >= wanted;
        if (whole) resize(i + run);
      }
      if (!whole) {
        resize(run);
        cut_to_alignment();
      }
      give_up_last();
      break;
    }
    case Group::Kind::kFirst:
      while (length() < rows(batch.kind, most) / block) {
        const Blocks hit = entry(batch, r, length());
        if (hit.empty()) break;
        resize(length() + 1);
        set(length() - 1, hit);
      }
      if (length() * block < batch.kind.window) cut_to_alignment();
      break;
    case Group::Kind::kChunked: {
      const std::int64_t start = most / batch.kind.window * batch.kind.window / block;
      resize(start);
      for (std::int64_t i = start; i < n; ++i) {
        const Blocks hit = entry(batch, r, i);
        if (hit.empty()) break;
        resize(i + 1);
        set(i, hit);
      }
      break;
    }
  }
  return found;
}

Hit Cache::lookup(const Request& r) const {
  Hit out;
  out.blocks.resize(rules_.groups.size());
  if (!rules_.caching || r.computes_all) return out;
  const std::int64_t most = r.known() - 1;  // the last token is computed in any case
  if (rules_.groups.size() == 1) {
    out.blocks = find(batches_[0], r, most, batches_[0].flagged, batches_[0].kind.block);
    out.tokens = count(out.blocks[0]) * batches_[0].kind.block;
    return out;
  }
  std::vector<std::optional<Found>> got(batches_.size());
  std::vector<bool> verified(batches_.size(), false);
  std::int64_t hit = most, longest = 0;
  for (;;) {
    std::int64_t current = hit;
    for (std::size_t b = 0; b < batches_.size(); ++b) {
      const Batch& batch = batches_[b];
      const std::int64_t block = batch.kind.block;
      if (batch.kind.kind == Group::Kind::kFull && got[b]) {
        current = rules_.trim_to_stored ? std::min(current, count((*got[b])[0]) * block)
                                        : current / block * block;
        continue;
      }
      const bool drop = batch.flagged && !verified[b];
      got[b] =
          find(batch, r, drop ? std::min(current + block, most) : current, drop, rules_.alignment);
      std::int64_t length = count((*got[b])[0]) * block;
      // Whoever has all first tokens has what it needs of any longer prefix.
      if (batch.kind.kind == Group::Kind::kFirst && length == batch.kind.window) {
        length = current / rules_.alignment * rules_.alignment;
      }
      if (drop) {
        verified[b] = true;
      } else if (length < current) {
        verified.assign(verified.size(), false);
      }
      current = length;
      longest = std::max(longest, length);
    }
    if (current >= hit) break;
    hit = current;
    if (batches_.size() == 2 && batches_[0].kind.kind == Group::Kind::kFull) break;
  }
  for (std::size_t b = 0; b < batches_.size(); ++b) {
    for (std::size_t k = 0; k < batches_[b].groups.size(); ++k) {
      Blocks& blocks = out.blocks[batches_[b].groups[k]];
      blocks = (*got[b])[k];
      const std::int64_t entries = hit / batches_[b].kind.block;
      const Group::Kind kind = batches_[b].kind.kind;
      const bool from_first = kind == Group::Kind::kFull || kind == Group::Kind::kFirst;
      if (from_first && count(blocks) > entries) {
        blocks.resize(index(entries));
      }
    }
  }
  out.tokens = hit;
  if (longest > hit) out.longest = longest;
  return out;
}

// ---- blocks of requests

std::int64_t Cache::need(const Request& r, std::int64_t tokens, std::int64_t total, const Hit* hit,
                         bool capped) const {
  const auto known = tables_.find(r.id);
  std::int64_t sum = 0;
  for (std::size_t g = 0; g < rules_.groups.size(); ++g) {
    const Group& group = rules_.groups[g];
    const std::int64_t held = known == tables_.end() ? 0 : count(known->second[g].blocks);
    std::int64_t wanted = entries(group, tokens);
    if (const auto most = cap(group); capped && most) wanted = std::min(wanted, *most);
    if (known != tables_.end() && known->second[g].cached) {
      sum += std::max<std::int64_t>(wanted - held, 0);
      continue;
    }
    const std::int64_t gone = skipped(group, total) / group.block;
    const Blocks none;
    const Blocks& hits = hit == nullptr ? none : hit->blocks[g];
    sum += std::max<std::int64_t>(wanted - std::max(gone, count(hits) + held), 0);
    for (std::int64_t i = std::max<std::int64_t>(0, gone - held); i < count(hits); ++i) {
      const std::int32_t block = hits[index(i)];
      if (block != kNull && holders_[index(block)] == 0) ++sum;  // touching it takes it from there
    }
  }
  return sum;
}

bool Cache::allocate(const Request& r, std::int64_t tokens, const Hit* hit, std::int64_t reserve) {
  const std::int64_t total =
      std::min(r.computed + (hit == nullptr ? 0 : hit->tokens), rules_.max_len);
  if (hit != nullptr && rules_.whole_sequence &&
      need(r, std::min(r.known(), rules_.max_len), total, hit, true) + reserve > num_free_) {
    return false;
  }
  const std::int64_t upto = std::min(total + tokens + rules_.lookahead, rules_.max_len);
  const std::int64_t late = rules_.window_of_results ? r.in_flight : 0;
  const std::int64_t seen = std::max<std::int64_t>(total - late, 0);
  if (const auto held = tables_.find(r.id); held != tables_.end()) {
    for (std::size_t g = 0; g < rules_.groups.size(); ++g) {
      Blocks& table = held->second[g].blocks;
      Blocks dropped;
      std::int64_t i = skipped(rules_.groups[g], seen) / rules_.groups[g].block;
      for (i = std::min(i, count(table)) - 1; i >= 0 && table[index(i)] != kNull; --i) {
        dropped.push_back(table[index(i)]);
        table[index(i)] = kNull;
      }
      release(dropped);
    }
  }
  if (need(r, upto, total, hit, false) + reserve > num_free_) return false;
  std::vector<Table>& tables = tables_.try_emplace(r.id, rules_.groups.size()).first->second;
  if (hit != nullptr && hit->tokens > 0) {
    for (std::size_t g = 0; g < rules_.groups.size(); ++g) {
      const std::int64_t gone = skipped(rules_.groups[g], total) / rules_.groups[g].block;
      Blocks& table = tables[g].blocks;
      table.assign(index(gone), kNull);
      for (std::int64_t i = gone; i < count(hit->blocks[g]); ++i) {
        table.push_back(hit->blocks[g][index(i)]);
        if (table.back() != kNull) touch(r.id, table.back());
      }
      tables[g].cached = count(table);
    }
  } else if (hit != nullptr) {  // rows that come back from host memory have entries from there on
    for (std::size_t g = 0; g < rules_.groups.size(); ++g) {
      tables[g].blocks.assign(index(skipped(rules_.groups[g], total) / rules_.groups[g].block),
                              kNull);
    }
  }
  for (std::size_t g = 0; g < rules_.groups.size(); ++g) {
    const std::int64_t wanted = entries(rules_.groups[g], upto);
    take_new(r.id, wanted - count(tables[g].blocks), tables[g].blocks);
  }
  if (rules_.caching) commit(r, std::min(total + tokens, r.known()));
  return true;
}

void Cache::free(std::int64_t request) {
  const auto held = tables_.find(request);
  if (held == tables_.end()) return;
  for (Table& table : held->second) {
    std::reverse(table.blocks.begin(), table.blocks.end());
    release(table.blocks);
  }
  tables_.erase(held);
}

const Blocks& Cache::table(std::int64_t request, std::size_t group) const {
  static const Blocks kNone;
  const auto held = tables_.find(request);
  return held == tables_.end() ? kNone : held->second[group].blocks;
}

// ---- keys

void Cache::commit(const Request& r, std::int64_t tokens) {
  const bool alone = rules_.groups.size() == 1;
  const std::int64_t aligned = alone ? tokens : tokens / rules_.alignment * rules_.alignment;
  for (std::size_t g = 0; g < rules_.groups.size(); ++g) {
    const Group& group = rules_.groups[g];
    Table& table = tables_.at(r.id)[g];
    std::int64_t limit = aligned;
    if (!alone && keeps_more_[g] && aligned > 0) limit = std::min(tokens, aligned + group.block);
    const std::int64_t full = rows(group, limit) / group.block;
    const std::int64_t before = table.cached.value_or(0);
    for (std::int64_t i = before; i < full; ++i) {
      const std::int32_t block = table.blocks[index(i)];
      if (block == kNull || !worth_a_key(r, g, i)) continue;
      // A prompt's end inside it gives way to the block.
      if (keys_of(block) > 0) take_key(block, keys_[index(block)].front());
      give_key(r.id, block, {r.prefixes[index((i + 1) * group.block / rules_.hash_block - 1)], g});
    }
    if (before < full) table.cached = full;
    if (!rules_.prompt_ends || group.kind != Group::Kind::kFull) continue;
    const std::int64_t end = r.prompt / rules_.hash_block * rules_.hash_block;
    if (end == 0 || end > limit || end % group.block == 0) continue;
    if (end / group.block >= count(table.blocks)) continue;
    const std::int32_t block = table.blocks[index(end / group.block)];
    const Key key{r.prefixes[index(end / rules_.hash_block - 1)], g};
    if (!has_key(block, key)) give_key(r.id, block, key);
  }
}

// A block of a window is found only by a hit that ends at an aligned end: others need no key.
bool Cache::worth_a_key(const Request& r, std::size_t g, std::int64_t i) const {
  const Group& group = rules_.groups[g];
  if (group.kind != Group::Kind::kSliding) return true;
  const bool alone = rules_.groups.size() == 1;
  const std::int64_t align = alone ? group.block : rules_.alignment;
  if (!rules_.retain && align == group.block) return true;
  const std::int64_t shift = keeps_more_[g] ? 1 : 0;
  const std::int64_t wanted = ceil_div(group.window - 1, group.block) + shift;
  const std::int64_t period = rules_.retain.value_or(align) / group.block;
  if (period > 0 && wanted >= period) return true;
  if (period > 0 && i >= shift && (i - shift) % period >= period - wanted) return true;
  if (!rules_.retain) return false;
  std::vector<std::int64_t> ends = {r.prompt - 1};
  if (r.longest) ends.push_back(*r.longest);
  return std::any_of(ends.begin(), ends.end(), [&](std::int64_t tokens) {
    const std::int64_t end = tokens / align * align / group.block + shift;
    return i >= end - wanted && i < end;
  });
}

bool Cache::has_key(std::int32_t block, const Key& key) const {
  const std::vector<Key>& keys = keys_[index(block)];
  return std::count(keys.begin(), keys.end(), key) > 0;
}

void Cache::give_key(std::int64_t request, std::int32_t block, const Key& key) {
  found_under_[key].push_back(block);
  keys_[index(block)].push_back(key);
  new_keys_.push_back({request, block});
}

void Cache::take_key(std::int32_t block, Key key) {
  std::erase(keys_[index(block)], key);
  const auto under = found_under_.find(key);
  std::erase(under->second, block);
  if (under->second.empty()) found_under_.erase(under);
}

void Cache::take_all_keys(std::int32_t block) {
  while (keys_of(block) > 0) take_key(block, keys_[index(block)].front());
  std::erase_if(new_keys_, [&](const NewKey& k) { return k.block == block; });
}

void Cache::forget_new_keys(std::int64_t request) {
  const std::vector<NewKey> given = new_keys_;
  for (const NewKey& key : given) {
    if (key.request == request) take_all_keys(key.block);
  }
}

bool Cache::forget_all() {
  if (std::any_of(holders_.begin(), holders_.end(), [](std::int64_t n) { return n > 0; })) {
    return false;
  }
  found_under_.clear();
  keys_.assign(keys_.size(), {});
  new_keys_.clear();
  return true;
}

std::vector<std::int64_t> Cache::common_prefix() const {
  std::vector<std::int64_t> common(rules_.groups.size(), 0);
  for (std::size_t g = 0; g < common.size() && rules_.caching; ++g) {
    if (rules_.groups[g].kind != Group::Kind::kFull) continue;
    std::optional<Blocks> head;
    for (const auto& [request, tables] : tables_) {
      const Blocks& blocks = tables[g].blocks;
      if (blocks.empty()) continue;
      if (!head) head = blocks;
      const auto end =
          std::mismatch(head->begin(), head->end(), blocks.begin(), blocks.end()).first;
      head->erase(end, head->end());
    }
    common[g] = head ? count(*head) : 0;
  }
  return common;
}

// ---- the queue of free blocks

Blocks Cache::free_blocks() const {
  Blocks blocks;
  blocks.reserve(index(num_free_));
  std::copy_if(queue_.begin(), queue_.end(), std::back_inserter(blocks),
               [](std::int32_t block) { return block != kGone; });
  return blocks;
}

void Cache::line_up(std::int32_t block, bool in_front) {
  if (in_front) {
    queue_.push_front(block);
    ticket_[index(block)] = --first_ticket_;
  } else {
    ticket_[index(block)] = first_ticket_ + static_cast<std::int64_t>(queue_.size());
    queue_.push_back(block);
  }
  ++num_free_;
}

void Cache::leave_queue(std::int32_t block) {
  queue_[index(ticket_[index(block)] - first_ticket_)] = kGone;
  --num_free_;
  for (; !queue_.empty() && queue_.front() == kGone; ++first_ticket_) queue_.pop_front();
  if (static_cast<std::int64_t>(queue_.size()) <= 2 * num_free_ + 64) return;
  const Blocks left = free_blocks();  // new tickets, before those who left outnumber them
  queue_.clear();
  num_free_ = 0;
  for (const std::int32_t b : left) line_up(b, false);
}

void Cache::take_new(std::int64_t request, std::int64_t n, Blocks& table) {
  for (; n > 0; --n) {
    const std::int32_t block = queue_.front();
    leave_queue(block);
    take_all_keys(block);
    holders_[index(block)] = 1;
    last_holder_[index(block)] = request;
    table.push_back(block);
  }
}

void Cache::touch(std::int64_t request, std::int32_t block) {
  last_holder_[index(block)] = request;
  if (holders_[index(block)]++ == 0) leave_queue(block);
}

void Cache::release(const Blocks& blocks) {
  Blocks to_front, to_back;
  for (const std::int32_t block : blocks) {
    if (block == kNull || --holders_[index(block)] > 0) continue;
    const bool first =
        rules_.caching ? rules_.keyless_first && keys_of(block) == 0 : rules_.uncached_first;
    (first ? to_front : to_back).push_back(block);
  }
  std::reverse(to_front.begin(), to_front.end());
  for (const std::int32_t b : to_front) line_up(b, true);
  for (const std::int32_t b : to_back) line_up(b, false);
}

}  // namespace attnscope::plain
