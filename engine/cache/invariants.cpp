#include "engine/cache/invariants.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/model/numbers.h"

namespace attnscope {
namespace {

std::size_t groups(const KvFacts& f) { return f.kv.num_groups(); }
std::size_t slots(const KvFacts& f) {
  return groups(f) == 0 ? 0 : f.state.tables.size() / groups(f);
}
const std::vector<std::int32_t>& table(const KvFacts& f, std::size_t slot, std::size_t group) {
  return f.state.tables[slot * groups(f) + group];
}

// Whether a hit can end so that entry i of a windowed group is in its window: some multiple of the
// alignment lies at most a window (and a draft's block) after it.
bool worth_keeping(const KvOptions& o, std::size_t group, bool draft, std::int64_t i) {
  const GroupSpec& spec = o.groups[group];
  if (spec.kind != GroupKind::kSliding || o.groups.size() == 1) return true;
  const std::int64_t block = spec.block_tokens;
  const std::int64_t shift = draft ? 1 : 0;
  std::int64_t need = shift;
  while ((need - shift) * block < spec.window - 1) ++need;
  for (std::int64_t end = i + 1; end <= i + need; ++end) {
    if (end >= shift && (end - shift) > 0 && (end - shift) * block % o.alignment == 0) return true;
  }
  return false;
}

}  // namespace

std::int64_t first_seen(const GroupSpec& spec, std::int64_t computed) {
  if (!spec.forgets()) return 0;
  if (spec.kind == GroupKind::kChunked) return computed - computed % spec.window;
  return std::max<std::int64_t>(computed - (spec.window - 1), 0);
}

Finding check_partition(const KvFacts& f) {
  const char* name = "I1 partition";
  const KvSnapshot& s = f.state;
  if (s.free_count != to_count(s.queue.size())) {
    return violation(name, "{} blocks are counted as free, the queue has {}", s.free_count,
                     s.queue.size());
  }
  std::vector<bool> in(s.refs.size(), false);
  for (const std::int32_t b : s.queue) {
    if (b < f.kv.pool().first_block() || b >= f.kv.pool().end_block()) {
      return violation(name, "block {} is in the free queue", b);
    }
    if (in[static_cast<std::size_t>(b)]) return violation(name, "block {} is queued twice", b);
    in[static_cast<std::size_t>(b)] = true;
  }
  for (auto b = static_cast<std::size_t>(f.kv.pool().first_block()); b < s.refs.size(); ++b) {
    if (in[b] != (s.refs[b] == 0)) {
      return violation(name, "block {} has {} references and is {}queued", b, s.refs[b],
                       in[b] ? "" : "not ");
    }
  }
  if (!f.kv.pool().queue().consistent())
    return violation(name, "links forward and backward differ");
  return {};
}

Finding check_conservation(const KvFacts& f) {
  std::vector<std::int64_t> held(f.state.refs.size(), 0);
  for (const auto& table : f.state.tables) {
    for (const std::int32_t b : table) ++held[static_cast<std::size_t>(b)];
  }
  for (const std::int32_t b : f.pins) ++held[static_cast<std::size_t>(b)];
  for (std::size_t b = 1; b < held.size(); ++b) {
    if (held[b] != f.state.refs[b]) {
      return violation("I2 conservation", "block {} has {} references and {} holders", b,
                       f.state.refs[b], held[b]);
    }
  }
  return {};
}

Finding check_ownership(const KvFacts& f) {
  const char* name = "I3 ownership";
  struct Place {
    std::int64_t slot = -1, group = -1, index = -1;
  };
  std::vector<Place> first(f.state.refs.size());
  for (std::size_t slot = 0; slot < slots(f); ++slot) {
    for (std::size_t g = 0; g < groups(f); ++g) {
      const auto& t = table(f, slot, g);
      for (std::size_t i = 0; i < t.size(); ++i) {
        if (t[i] == kNullBlock) continue;
        Place& p = first[static_cast<std::size_t>(t[i])];
        const Place here{static_cast<std::int64_t>(slot), static_cast<std::int64_t>(g),
                         static_cast<std::int64_t>(i)};
        if (p.slot < 0) {
          p = here;
          continue;
        }
        if (p.slot == here.slot || p.group != here.group || p.index != here.index) {
          return violation(name,
                           "block {} is entry {} of group {} in slot {} and entry {} of group {} "
                           "in slot {}",
                           t[i], p.index, p.group, p.slot, i, g, slot);
        }
        const auto& keys = f.state.keys[static_cast<std::size_t>(t[i])];
        const bool keyed = std::any_of(keys.begin(), keys.end(), [&](const PrefixKey& k) {
          return k.group == static_cast<std::int32_t>(g);
        });
        if (!keyed && !f.keys_taken_away) {
          return violation(name, "block {} is shared and has no key of group {}", t[i], g);
        }
      }
    }
  }
  return {};
}

Finding check_map(const KvFacts& f) {
  const char* name = "I4 map";
  const BlockPool& pool = f.kv.pool();
  if (!pool.caching()) return {};
  std::int64_t of_blocks = 0;
  for (std::size_t b = 0; b < f.state.keys.size(); ++b) {
    for (const PrefixKey& key : f.state.keys[b]) {
      if (b == kNullBlock) return violation(name, "the null block has a key");
      if (key.group < 0 || key.group >= static_cast<std::int32_t>(groups(f))) {
        return violation(name, "block {} has a key of group {}", b, key.group);
      }
      const std::vector<std::int32_t> blocks = pool.map().blocks(key);
      const auto id = static_cast<std::int32_t>(b);
      if (std::count(blocks.begin(), blocks.end(), id) != 1) {
        return violation(name, "block {} is not once under its key", b);
      }
      ++of_blocks;
    }
  }
  std::int64_t of_map = 0;
  const std::vector<PrefixKey> keys = pool.map().keys();
  for (const PrefixKey& key : keys) {
    const std::vector<std::int32_t> blocks = pool.map().blocks(key);
    if (blocks.empty()) return violation(name, "a key has no block");
    of_map += to_count(blocks.size());
  }
  if (of_map != of_blocks) {
    return violation(name, "the map lists {} blocks, the blocks {} keys", of_map, of_blocks);
  }
  if (static_cast<std::int64_t>(keys.size()) != pool.num_keys()) {
    return violation(name, "{} keys are counted, the map has {}", pool.num_keys(), keys.size());
  }
  return {};
}

Finding check_content(const KvFacts& f) {
  const std::int64_t hash_block = f.kv.options().hash_block;
  for (std::size_t slot = 0; slot < slots(f); ++slot) {
    const KvRequest* r = f.request ? f.request(static_cast<std::int32_t>(slot)) : nullptr;
    if (r == nullptr) continue;
    for (std::size_t g = 0; g < groups(f); ++g) {
      const auto& t = table(f, slot, g);
      const std::int64_t block = f.kv.options().groups[g].block_tokens;
      for (std::size_t i = 0; i < t.size(); ++i) {
        if (t[i] == kNullBlock) continue;
        const auto& keys = f.state.keys[static_cast<std::size_t>(t[i])];
        if (keys.empty()) continue;
        // The block's last hash, or that of any end inside it.
        const std::int64_t first = static_cast<std::int64_t>(i) * block / hash_block;
        const std::int64_t last =
            std::min((static_cast<std::int64_t>(i) + 1) * block / hash_block, r->chain.size());
        bool known = false;
        for (std::int64_t h = first; h < last && !known; ++h) known = keys[0].hash == r->chain[h];
        if (!known || keys[0].group != static_cast<std::int32_t>(g)) {
          return violation("I5 content",
                           "block {}, entry {} of request {} in group {}, has the key of "
                           "other tokens",
                           t[i], i, r->id, g);
        }
      }
    }
  }
  return {};
}

Finding check_nulls(const KvFacts& f) {
  const char* name = "I7 nulls";
  for (std::size_t slot = 0; slot < slots(f); ++slot) {
    const std::int64_t point = slot < f.drop_points.size() ? f.drop_points[slot] : -1;
    for (std::size_t g = 0; g < groups(f); ++g) {
      const auto& t = table(f, slot, g);
      const GroupSpec& spec = f.kv.options().groups[g];
      std::int64_t nulls = 0;
      while (nulls < to_count(t.size()) && t[static_cast<std::size_t>(nulls)] == kNullBlock)
        ++nulls;
      for (std::int64_t i = nulls; i < to_count(t.size()); ++i) {
        if (t[static_cast<std::size_t>(i)] == kNullBlock) {
          return violation(name, "entry {} of slot {} in group {} is null after a real one", i,
                           slot, g);
        }
      }
      if (t.empty() || point < 0) continue;
      const std::int64_t seen = first_seen(spec, point);
      if (nulls * spec.block_tokens > seen) {
        return violation(name, "slot {} in group {}: position {} is in sight and its block is gone",
                         slot, g, seen);
      }
      if (nulls < to_count(t.size()) && (nulls + 1) * spec.block_tokens <= seen) {
        return violation(name,
                         "slot {} in group {}: entry {} is out of sight of position {} and kept",
                         slot, g, nulls, seen);
      }
    }
  }
  return {};
}

Finding check_cap(const KvFacts& f) {
  const KvOptions& o = f.kv.options();
  for (std::size_t g = 0; g < groups(f); ++g) {
    const GroupSpec& spec = o.groups[g];
    if (spec.kind == GroupKind::kFull) continue;
    // All tokens in sight of the first computed one, those computed and the room asked for; a
    // window, or a chunk that is no whole number of blocks, may start inside a block.
    const std::int64_t before = spec.kind == GroupKind::kSliding ? spec.window - 1 : spec.window;
    const std::int64_t tokens = std::min(before + o.cap_tokens + f.lookahead, o.max_model_len);
    const bool inside = spec.kind == GroupKind::kSliding || spec.window % spec.block_tokens != 0;
    std::int64_t cap = (tokens + spec.block_tokens - 1) / spec.block_tokens + (inside ? 1 : 0);
    if (spec.kind == GroupKind::kFirst) cap = spec.window / spec.block_tokens;
    for (std::size_t slot = 0; slot < slots(f); ++slot) {
      const auto& t = table(f, slot, g);
      const std::int64_t real = to_count(t.size()) - std::count(t.begin(), t.end(), kNullBlock);
      if (real > cap) {
        return violation("I8 cap", "slot {} holds {} blocks of group {}, at most {} are allowed",
                         slot, real, g, cap);
      }
    }
  }
  return {};
}

Finding check_commit(const KvFacts& f) {
  const char* name = "I9 commit";
  const KvOptions& o = f.kv.options();
  if (!o.caching) return {};
  std::vector<bool> drafts(groups(f), false);
  if (o.switches.mask == RetentionMask::kTailDraftShift) {
    for (std::size_t g = 0; g < groups(f); ++g) {
      for (const GroupSpec& other : o.groups) {
        if (other.flagged && other.same_kind(o.groups[g])) drafts[g] = true;
      }
    }
  }
  for (std::size_t slot = 0; slot < slots(f); ++slot) {
    for (std::size_t g = 0; g < groups(f); ++g) {
      const auto& t = table(f, slot, g);
      const std::int64_t cached = f.state.cached[slot * groups(f) + g];
      if (cached > to_count(t.size())) {
        return violation(name, "slot {} in group {}: {} entries committed of {}", slot, g, cached,
                         t.size());
      }
      if (f.keys_taken_away || o.retention) continue;
      for (std::int64_t i = 0; i < cached; ++i) {
        const std::int32_t b = t[static_cast<std::size_t>(i)];
        if (b == kNullBlock || !f.state.keys[static_cast<std::size_t>(b)].empty()) continue;
        if (worth_keeping(o, g, drafts[g], i)) {
          return violation(name, "slot {} in group {}: block {} of committed entry {} has no key",
                           slot, g, b, i);
        }
      }
    }
  }
  return {};
}

Finding check_quiescence(const KvFacts& f) {
  const char* name = "I17 quiescence";
  for (const auto& t : f.state.tables) {
    if (!t.empty()) return {};
  }
  if (!f.pins.empty()) return {};
  for (const std::int64_t cached : f.state.cached) {
    if (cached >= 0) return violation(name, "a request without a table has committed entries");
  }
  for (std::size_t b = 1; b < f.state.refs.size(); ++b) {
    if (f.state.refs[b] != 0) return violation(name, "block {} is held by nobody known", b);
  }
  const std::int64_t usable = f.kv.pool().usable();
  if (f.state.free_count != usable) {
    return violation(name, "{} of {} blocks are free", f.state.free_count, usable);
  }
  return {};
}

Finding check_metrics(const KvFacts& f) {
  const char* name = "I22 metrics";
  const BlockPool& pool = f.kv.pool();
  const double usage = pool.usage();
  if (!(usage >= 0 && usage <= 1)) return violation(name, "usage is {}", usage);
  std::int64_t held = 0, with_key = 0, empty = 0;
  const std::vector<bool> in = queued(f.state);
  for (auto b = static_cast<std::size_t>(pool.first_block()); b < f.state.refs.size(); ++b) {
    if (!in[b]) {
      ++held;
    } else {
      ++(f.state.keys[b].empty() ? empty : with_key);
    }
  }
  if (with_key != pool.free_with_key()) {
    return violation(name, "{} free blocks are counted with a key, {} have one",
                     pool.free_with_key(), with_key);
  }
  if (held + with_key + empty + 1 != pool.num_blocks()) {
    return violation(name, "{} held, {} free with and {} without a key are not {} blocks", held,
                     with_key, empty, pool.usable());
  }
  return {};
}

Finding check_storage(const CacheLayout& layout) {
  const char* name = "I21 storage";
  for (const CacheGroup& group : layout.groups) {
    std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
    for (const int i : group.specs) {
      const CacheSpec& spec = layout.specs[static_cast<std::size_t>(i)];
      ranges.emplace_back(spec.offset, spec.offset + spec.page_bytes);
    }
    std::sort(ranges.begin(), ranges.end());
    std::int64_t end = 0;
    for (const auto& [from, to] : ranges) {
      if (from < end)
        return violation(name, "group {}: two layers share byte {}", group.name, from);
      end = to;
    }
    if (end > layout.block_stride) {
      return violation(name, "group {} ends at byte {} of a block of {}", group.name, end,
                       layout.block_stride);
    }
  }
  return {};
}

std::vector<Violation> check_state(const KvFacts& f) {
  std::vector<Violation> out;
  for (const auto check :
       {check_partition, check_conservation, check_ownership, check_map, check_content, check_nulls,
        check_cap, check_commit, check_quiescence, check_metrics}) {
    if (Finding found = check(f)) out.push_back(std::move(*found));
  }
  return out;
}

}  // namespace attnscope
