#include "engine/cache/call_invariants.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/model/numbers.h"

namespace attnscope {
namespace {

using Blocks = std::vector<std::int32_t>;

// What an allocation did to a request's tables, by group.
struct Moves {
  std::vector<Blocks> dropped;   // newest first
  std::vector<Blocks> touched;   // hits
  std::vector<Blocks> external;  // taken for tokens from outside
  std::vector<Blocks> grown;
};

std::size_t place(const KvTransition& t, std::size_t group) {
  return static_cast<std::size_t>(t.call.request->slot) * t.kv.num_groups() + group;
}

// Tokens computed before the new ones.
std::int64_t total(const KvTransition& t) {
  const Allocation& a = *t.call.allocation;
  const std::int64_t hit = a.hit == nullptr ? 0 : a.hit->tokens;
  return std::min(t.call.request->computed + hit + a.external, t.kv.options().max_model_len);
}

Moves moves_of(const KvTransition& t) {
  const std::size_t groups = t.kv.num_groups();
  Moves m{std::vector<Blocks>(groups), std::vector<Blocks>(groups), std::vector<Blocks>(groups),
          std::vector<Blocks>(groups)};
  const Allocation& a = *t.call.allocation;
  for (std::size_t g = 0; g < groups; ++g) {
    const Blocks& before = t.before.tables[place(t, g)];
    const Blocks& after = t.after.tables[place(t, g)];
    for (std::size_t i = before.size(); i > 0; --i) {
      if (before[i - 1] != kNullBlock && after[i - 1] == kNullBlock)
        m.dropped[g].push_back(before[i - 1]);
    }
    const bool adopts = a.hit != nullptr && a.hit->any() && before.empty();
    const std::int64_t hit = adopts ? a.hit->groups[g].size() : to_count(before.size());
    const std::int64_t block = t.kv.options().groups[g].block_tokens;
    const std::int64_t rows = t.kv.options().groups[g].with_rows(total(t));
    const std::int64_t outside = a.external > 0 ? (rows + block - 1) / block : 0;
    for (std::int64_t i = to_count(before.size()); i < to_count(after.size()); ++i) {
      const std::int32_t b = after[static_cast<std::size_t>(i)];
      if (b == kNullBlock) continue;
      (i < hit ? m.touched : i < outside ? m.external : m.grown)[g].push_back(b);
    }
  }
  return m;
}

std::int64_t total_blocks(const std::vector<Blocks>& blocks) {
  std::int64_t n = 0;
  for (const Blocks& b : blocks) n += to_count(b.size());
  return n;
}

std::int64_t unheld(const std::vector<Blocks>& blocks, const KvSnapshot& state) {
  std::int64_t n = 0;
  for (const Blocks& list : blocks) {
    for (const std::int32_t b : list) n += state.refs[static_cast<std::size_t>(b)] == 0 ? 1 : 0;
  }
  return n;
}

// The free queue and the references as plain lists, moved by the rules.
class PoolRules {
 public:
  PoolRules(const KvSnapshot& state, bool caching, FreeOrder order)
      : queue(state.queue),
        refs_(state.refs),
        keys_(state.keys),
        caching_(caching),
        order_(order) {}

  void release(const Blocks& blocks) {
    Blocks front;
    Blocks back;
    for (const std::int32_t b : blocks) {
      if (b == kNullBlock || --refs_[static_cast<std::size_t>(b)] > 0) continue;
      const bool keyed = !keys_[static_cast<std::size_t>(b)].empty();
      const bool ahead = caching_ ? order_ != FreeOrder::kAppend && !keyed
                                  : order_ == FreeOrder::kLifoWhenUncached;
      (ahead ? front : back).push_back(b);
    }
    queue.insert(queue.begin(), front.begin(), front.end());
    queue.insert(queue.end(), back.begin(), back.end());
  }
  void touch(const Blocks& blocks) {
    for (const std::int32_t b : blocks) {
      if (refs_[static_cast<std::size_t>(b)]++ == 0) std::erase(queue, b);
    }
  }
  // Whether exactly these blocks stood in front, in this order.
  bool take(const Blocks& blocks) {
    if (blocks.size() > queue.size() || !std::equal(blocks.begin(), blocks.end(), queue.begin())) {
      return false;
    }
    queue.erase(queue.begin(), queue.begin() + to_count(blocks.size()));
    return true;
  }

  Blocks queue;

 private:
  std::vector<std::int32_t> refs_;
  std::vector<std::vector<PrefixKey>> keys_;
  bool caching_;
  FreeOrder order_;
};

bool allocated(const KvTransition& t) {
  return t.call.kind == KvCallKind::kAllocate && t.call.outcome == Allocated::kYes;
}

}  // namespace

Finding check_length(const KvTransition& t) {
  if (!allocated(t)) return {};
  const Allocation& a = *t.call.allocation;
  const std::int64_t upto =
      std::min(total(t) + a.new_tokens + a.lookahead, t.kv.options().max_model_len);
  for (std::size_t g = 0; g < t.kv.num_groups(); ++g) {
    const std::int64_t block = t.kv.options().groups[g].block_tokens;
    const std::int64_t before = to_count(t.before.tables[place(t, g)].size());
    const std::int64_t after = to_count(t.after.tables[place(t, g)].size());
    const std::int64_t rows = t.kv.options().groups[g].with_rows(upto);
    const std::int64_t wanted = std::max(before, (rows + block - 1) / block);
    if (after != wanted) {
      return violation("I6 length", "request {} has {} entries in group {} for {} tokens, not {}",
                       t.call.request->id, after, g, upto, wanted);
    }
  }
  return {};
}

Finding check_commits(const KvTransition& t) {
  const char* name = "I9 commit";
  const KvOptions& o = t.kv.options();
  if (!allocated(t) || !o.caching || t.call.allocation->delay_commit) return {};
  const std::int64_t known =
      std::min(total(t) + t.call.allocation->new_tokens, t.call.request->num_tokens());
  for (std::size_t g = 0; g < t.kv.num_groups(); ++g) {
    const std::int64_t block = o.groups[g].block_tokens;
    bool draft = false;
    for (const GroupSpec& other : o.groups) {
      draft = draft || (o.switches.mask == RetentionMask::kTailDraftShift && other.flagged &&
                        other.same_kind(o.groups[g]));
    }
    std::int64_t limit = known;
    if (t.kv.num_groups() > 1) {
      limit = known - known % o.alignment;
      if (draft && limit > 0) limit = std::min(known, limit + block);
    }
    limit = o.groups[g].with_rows(limit);
    const std::int64_t before = t.before.cached[place(t, g)];
    const std::int64_t after = t.after.cached[place(t, g)];
    if (after < before) {
      return violation(name, "request {} in group {}: {} committed entries became {}",
                       t.call.request->id, g, before, after);
    }
    if (std::max<std::int64_t>(after, 0) < limit / block) {
      return violation(name, "request {} in group {}: {} entries committed, {} tokens allow {}",
                       t.call.request->id, g, after, limit, limit / block);
    }
    const bool adopted = before < 0 && t.call.allocation->hit != nullptr;
    if (!adopted && after > std::max<std::int64_t>(before, limit / block)) {
      return violation(name, "request {} in group {}: {} entries committed, only {} may be",
                       t.call.request->id, g, after, limit / block);
    }
  }
  return {};
}

Finding check_hit(const KvTransition& t) {
  const char* name = "I10 hit";
  if (t.call.kind != KvCallKind::kLookup || t.call.hit == nullptr || !t.call.hit->any()) return {};
  const KvOptions& o = t.kv.options();
  const PrefixHit& hit = *t.call.hit;
  const KvRequest& r = *t.call.request;
  if (hit.tokens > r.num_tokens() - 1) {
    return violation(name, "request {} of {} tokens hits {}", r.id, r.num_tokens(), hit.tokens);
  }
  const bool single = o.groups.size() == 1;
  const std::int64_t unit = single ? o.groups[0].block_tokens : o.alignment;
  if (hit.tokens % unit != 0) {
    return violation(name, "a hit of {} tokens is no multiple of {}", hit.tokens, unit);
  }
  for (std::size_t g = 0; g < o.groups.size(); ++g) {
    const GroupSpec& spec = o.groups[g];
    const GroupHit& h = hit.groups[g];
    if (h.size() * spec.block_tokens != spec.with_rows(hit.tokens)) {
      return violation(name, "group {} has {} entries for a hit of {} tokens", g, h.size(),
                       hit.tokens);
    }
    std::int64_t first = 0;  // position from which on all blocks must be there
    if (spec.kind == GroupKind::kSliding) {
      first = std::max<std::int64_t>(hit.tokens - (spec.window - 1), 0);
    } else if (spec.kind == GroupKind::kChunked) {
      first = hit.tokens - hit.tokens % spec.window;
    }
    for (std::int64_t i = 0; i < h.size(); ++i) {
      const std::int32_t b = h[i];
      if (b == kNullBlock) {
        if ((i + 1) * spec.block_tokens > first) {
          return violation(name, "group {}: entry {} of a hit of {} tokens is null and in sight", g,
                           i, hit.tokens);
        }
        continue;
      }
      const BlockHash& hash = r.chain[(i + 1) * spec.block_tokens / o.hash_block - 1];
      const auto& keys = t.before.keys[static_cast<std::size_t>(b)];
      const bool right = std::any_of(keys.begin(), keys.end(), [&](const PrefixKey& k) {
        return k.hash == hash && k.group == static_cast<std::int32_t>(g);
      });
      if (!right)
        return violation(name, "group {}: entry {} is block {} of other content", g, i, b);
    }
    // A flagged group's draft needs a block more than the hit shows.
    if (spec.flagged && hit.tokens + spec.block_tokens > r.num_tokens() - 1) {
      return violation(name, "a flagged group hits {} of {} tokens and gives none up", hit.tokens,
                       r.num_tokens());
    }
  }
  return {};
}

Finding check_arithmetic(const KvTransition& t) {
  if (!allocated(t)) return {};
  const Moves m = moves_of(t);
  std::int64_t freed = 0;
  for (const Blocks& list : m.dropped) {
    for (const std::int32_t b : list) freed += t.before.refs[static_cast<std::size_t>(b)] == 1;
  }
  const std::int64_t expected = t.before.free_count + freed - unheld(m.touched, t.before) -
                                total_blocks(m.external) - total_blocks(m.grown);
  if (t.after.free_count != expected) {
    return violation("I11 free arithmetic",
                     "request {}: {} blocks are free, {} before, {} dropped, {} "
                     "hits taken out, {} taken",
                     t.call.request->id, t.after.free_count, t.before.free_count, freed,
                     unheld(m.touched, t.before), total_blocks(m.external) + total_blocks(m.grown));
  }
  return {};
}

Finding check_prediction(const KvTransition& t) {
  if (!allocated(t)) return {};
  const Moves m = moves_of(t);
  const std::int64_t taken =
      unheld(m.touched, t.before) + total_blocks(m.external) + total_blocks(m.grown);
  if (taken != t.predicted) {
    return violation("I12 prediction", "request {}: {} blocks were needed, {} taken",
                     t.call.request->id, t.predicted, taken);
  }
  return {};
}

Finding check_failure(const KvTransition& t) {
  const char* name = "I13 failed allocation";
  if (t.call.kind == KvCallKind::kLookup) {
    if (t.before == t.after) return {};
    return violation(name, "a lookup changed the state");
  }
  if (t.call.kind != KvCallKind::kAllocate || t.call.outcome == Allocated::kYes) return {};
  if (t.call.outcome != Allocated::kTooFewFree) {
    if (t.before == t.after) return {};
    return violation(name, "request {} was refused and the state changed", t.call.request->id);
  }
  // Only its own windows may have been dropped.
  const Moves m = moves_of(t);
  KvSnapshot expected = t.before;
  for (std::size_t g = 0; g < t.kv.num_groups(); ++g) {
    for (std::int32_t& b : expected.tables[place(t, g)]) {
      const Blocks& dropped = m.dropped[g];
      if (std::find(dropped.begin(), dropped.end(), b) == dropped.end()) continue;
      --expected.refs[static_cast<std::size_t>(b)];
      b = kNullBlock;
    }
  }
  if (expected.tables != t.after.tables || expected.refs != t.after.refs ||
      expected.keys != t.after.keys || expected.cached != t.after.cached) {
    return violation(name, "request {} was refused and more than its windows changed",
                     t.call.request->id);
  }
  return {};
}

Finding check_order(const KvTransition& t) {
  const char* name = "I14 order";
  PoolRules rules(t.before, t.kv.options().caching, t.kv.options().switches.free_order);
  const std::size_t groups = t.kv.num_groups();
  if (t.call.kind == KvCallKind::kAllocate) {
    const Moves m = moves_of(t);
    for (const Blocks& dropped : m.dropped) rules.release(dropped);
    const bool interleaved = t.kv.options().switches.adopt == AdoptOrder::kPerGroup;
    bool front = true;
    for (std::size_t g = 0; g < groups; ++g) {
      rules.touch(m.touched[g]);
      if (interleaved) front = front && rules.take(m.external[g]);
    }
    for (std::size_t g = 0; g < groups && !interleaved; ++g) {
      front = front && rules.take(m.external[g]);
    }
    for (std::size_t g = 0; g < groups; ++g) front = front && rules.take(m.grown[g]);
    if (!front) {
      return violation(name, "request {} got other blocks than those in front", t.call.request->id);
    }
  } else if (t.call.kind == KvCallKind::kFree) {
    for (std::size_t g = 0; g < groups; ++g) {
      Blocks table = t.before.tables[place(t, g)];
      std::reverse(table.begin(), table.end());
      rules.release(table);
    }
  } else if (t.call.kind == KvCallKind::kRelease) {
    rules.release(Blocks(t.call.blocks.begin(), t.call.blocks.end()));
  }
  if (rules.queue == t.after.queue) return {};
  const auto [expected, found] = std::mismatch(rules.queue.begin(), rules.queue.end(),
                                               t.after.queue.begin(), t.after.queue.end());
  const auto shown = [](auto it, const Blocks& in) {
    return it == in.end() ? std::string("the end") : fmt::format("block {}", *it);
  };
  return violation(name, "after {} place {} of the free queue is {}, not {}",
                   kv_call_name(t.call.kind), expected - rules.queue.begin(),
                   shown(found, t.after.queue), shown(expected, rules.queue));
}

std::vector<Violation> check_transition(const KvTransition& t) {
  std::vector<Violation> out;
  for (const auto check : {check_hit, check_failure, check_length, check_arithmetic,
                           check_prediction, check_commits, check_order}) {
    if (Finding found = check(t)) out.push_back(std::move(*found));
  }
  return out;
}

}  // namespace attnscope
