#include "engine/cache/kv_manager.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>

namespace attnscope {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

// Tells an audit, if there is one, before and after a call.
class Watched {
 public:
  Watched(KvAudit* audit, const KvManager& kv, const KvCall& what)
      : call(what), audit_(audit), kv_(kv) {
    if (audit_ != nullptr) audit_->before(kv_, call);
  }
  ~Watched() {
    if (audit_ != nullptr) audit_->after(kv_, call);
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  KvCall call;

 private:
  KvAudit* audit_;
  const KvManager& kv_;
};

}  // namespace

const char* kv_call_name(KvCallKind kind) {
  constexpr std::array kNames = {"lookup", "allocate", "commit", "free",
                                 "take",   "release",  "evict",  "reset"};
  return kNames[static_cast<std::size_t>(kind)];
}

KvManager::KvManager(const KvOptions& options)
    : options_(options),
      groups_(options.groups.size()),
      pool_(options.num_blocks, options.caching, options.switches.free_order, options.first_block),
      lookup_(options.groups, options.alignment, options.hash_block, options.switches.full_trim),
      drafts_(groups_, false),
      watermark_blocks_(
          static_cast<std::int64_t>(options.watermark * static_cast<double>(options.num_blocks))) {
  // Groups that are looked up together keep the same blocks.
  if (options.switches.mask == RetentionMask::kTailDraftShift) {
    for (const LookupBatch& batch : lookup_.batches()) {
      for (const std::int32_t g : batch.groups) drafts_[static_cast<std::size_t>(g)] = batch.draft;
    }
  }
  // One group alone: hits end at every block, nothing is left out but by an interval.
  for (std::size_t g = 0; g < groups_; ++g) {
    const GroupSpec& spec = options.groups[g];
    caps_.push_back(admission_cap(spec, options.cap_tokens, options.max_model_len));
    const std::int64_t alignment = groups_ == 1 ? spec.block_tokens : options.alignment;
    retention_.emplace_back(spec, alignment, drafts_[g], options.retention);
  }
  hit_.groups.resize(groups_);
}

void KvManager::add(KvRequest& request) {
  if (unused_slots_.empty()) {
    request.slot = static_cast<std::int32_t>(num_slots());
    tables_.resize(tables_.size() + groups_);
    quiet_.emplace_back();
  } else {
    request.slot = unused_slots_.back();
    unused_slots_.pop_back();
  }
  extend_hashes(request);
}

const PrefixHit& KvManager::lookup(KvRequest& request) {
  Watched watched(audit_, *this, {.kind = KvCallKind::kLookup, .request = &request});
  watched.call.hit = &find(request);
  return hit_;
}

Allocated KvManager::allocate(const KvRequest& request, const Allocation& a) {
  if (audit_ == nullptr) return place(request, a);
  Watched watched(audit_, *this,
                  {.kind = KvCallKind::kAllocate, .request = &request, .allocation = &a});
  return watched.call.outcome = place(request, a);
}

const PrefixHit& KvManager::find(KvRequest& request) {
  request.shared.reset();
  if (!options_.caching || request.skip_lookup) {
    hit_.tokens = 0;
    hit_.shared.reset();
    for (GroupHit& hit : hit_.groups) hit.cut(0);
    return hit_;
  }
  // The last token is always computed: its logits are what the request is for.
  const std::int64_t most = request.num_tokens() - 1;
  lookup_.find(pool_, request.chain, most, hit_);
  request.shared = hit_.shared;
  return hit_;
}

std::int64_t KvManager::group_need(const KvRequest& request, std::size_t group, std::int64_t tokens,
                                   std::int64_t total, const PrefixHit* hit, bool capped) const {
  const GroupSpec& spec = options_.groups[group];
  const GroupTable& table = this->table(request.slot, group);
  std::int64_t required = blocks_for(spec, tokens);
  if (capped && caps_[group] >= 0) required = std::min(required, caps_[group]);
  if (table.cached >= 0) return std::max<std::int64_t>(required - table.size(), 0);
  const std::int64_t skipped = blocks_floor(skipped_tokens(spec, total), spec.block_tokens);
  std::int64_t held = table.size();
  std::int64_t evictable = 0;
  if (hit != nullptr) {
    const GroupHit& h = hit->groups[group];
    held += h.size();
    const std::int64_t first = std::max(skipped - table.size(), h.nulls);
    for (std::int64_t i = first; i < h.size(); ++i) evictable += pool_.refs(h[i]) == 0 ? 1 : 0;
  }
  return std::max<std::int64_t>(required - std::max(skipped, held), 0) + evictable;
}

std::int64_t KvManager::need(const KvRequest& request, std::int64_t tokens, std::int64_t total,
                             const PrefixHit* hit, bool capped) const {
  std::int64_t sum = 0;
  for (std::size_t g = 0; g < groups_; ++g) {
    sum += group_need(request, g, tokens, total, hit, capped);
  }
  return sum;
}

Allocated KvManager::place(const KvRequest& r, const Allocation& a) {
  if (a.new_tokens == 0 && a.external == 0) return Allocated::kNothingAsked;
  const std::int64_t most = options_.max_model_len;
  const std::int64_t local = r.computed + (a.hit != nullptr ? a.hit->tokens : 0);
  const std::int64_t total = std::min(local + a.external, most);
  const std::int64_t upto = std::min(total + a.new_tokens + a.lookahead, most);
  const std::int64_t known = std::min(total + a.new_tokens, r.num_tokens());
  const std::int64_t seen = options_.switches.window_basis == WindowBasis::kProcessed
                                ? std::max<std::int64_t>(total - r.in_flight, 0)
                                : total;
  const bool plain = a.hit == nullptr && a.external == 0 && !a.whole_sequence &&
                     !a.keep_watermark && !a.delay_commit;
  const Quiet& quiet = quiet_[static_cast<std::size_t>(r.slot)];
  if (plain && upto <= quiet.room && seen < quiet.drop_at && known < quiet.commit_at) {
    return Allocated::kYes;
  }

  const std::int64_t reserve = a.keep_watermark ? watermark_blocks_ : 0;
  if (a.whole_sequence) {
    const std::int64_t all = std::min(r.num_tokens(), most);
    if (need(r, all, total, a.hit, true) + reserve > pool_.num_free()) {
      return Allocated::kWholeSequenceTooLong;
    }
  }
  pool_.context.request = r.id;
  drop_windows(r.slot, seen);
  if (need(r, upto, total, a.hit, false) + reserve > pool_.num_free()) {
    update_quiet(r, 0);
    return Allocated::kTooFewFree;
  }
  if ((a.hit != nullptr && a.hit->any()) || a.external > 0) {
    const bool interleaved = options_.switches.adopt == AdoptOrder::kPerGroup;
    for (std::size_t g = 0; g < groups_; ++g) {
      if (a.hit != nullptr) adopt(r.slot, g, *a.hit, total);
      if (interleaved) take_external(r.slot, g, total, a.external);
    }
    for (std::size_t g = 0; g < groups_ && !interleaved; ++g) {
      take_external(r.slot, g, total, a.external);
    }
  }
  if (a.comes_back) begin_tables(r.slot, total);
  grow(r.slot, upto);
  if (events_on_) flush_removed();
  if (options_.caching && !a.delay_commit) commit_known(r, known);
  update_quiet(r, a.delay_commit ? 0 : known);
  return Allocated::kYes;
}

void KvManager::drop_windows(std::int32_t slot, std::int64_t total) {
  pool_.context.reason = CacheReason::kWindow;
  for (std::size_t g = 0; g < groups_; ++g) {
    const GroupSpec& spec = options_.groups[g];
    if (!spec.forgets()) continue;
    GroupTable& table = at(slot, g);
    const std::int64_t skipped = skipped_tokens(spec, total);
    const std::int64_t end = std::min(blocks_floor(skipped, spec.block_tokens), table.size());
    if (end <= table.first_real) continue;
    pool_.context.group = static_cast<std::int32_t>(g);
    scratch_.clear();
    for (std::int64_t i = end - 1; i >= table.first_real; --i) {
      std::int32_t& entry = table.blocks[static_cast<std::size_t>(i)];
      scratch_.push_back(entry);
      pool_.tell(CacheEventKind::kDrop, entry, CacheReason::kWindow, i);
      entry = kNullBlock;
    }
    table.first_real = end;
    pool_.release(scratch_);
  }
}

void KvManager::adopt(std::int32_t slot, std::size_t group, const PrefixHit& hit,
                      std::int64_t total) {
  GroupTable& table = at(slot, group);
  if (table.cached >= 0) return;
  assert(table.blocks.empty());
  const GroupSpec& spec = options_.groups[group];
  const GroupHit& h = hit.groups[group];
  const std::int64_t skipped = blocks_floor(skipped_tokens(spec, total), spec.block_tokens);
  const std::int64_t nulls = std::max(skipped, h.nulls);
  table.blocks.assign(static_cast<std::size_t>(nulls), kNullBlock);
  table.first_real = nulls;
  const std::int64_t first = nulls - h.nulls;  // of the real blocks
  if (first < static_cast<std::int64_t>(h.blocks.size())) {
    table.blocks.insert(table.blocks.end(), h.blocks.begin() + first, h.blocks.end());
  }
  table.cached = table.size();
  pool_.context.group = static_cast<std::int32_t>(group);
  pool_.context.reason = CacheReason::kAdopt;
  pool_.touch(std::span(table.blocks).subspan(static_cast<std::size_t>(nulls)));
}

void KvManager::take_external(std::int32_t slot, std::size_t group, std::int64_t total,
                              std::int64_t external) {
  const GroupSpec& spec = options_.groups[group];
  if (std::min(external, total - skipped_tokens(spec, total)) <= 0) return;
  GroupTable& table = at(slot, group);
  const std::int64_t n = blocks_for(spec, total) - table.size();
  if (n <= 0) return;
  pool_.context.group = static_cast<std::int32_t>(group);
  pool_.context.reason = CacheReason::kExternal;
  pool_.get(n, table.blocks);
}

void KvManager::begin_tables(std::int32_t slot, std::int64_t total) {
  for (std::size_t g = 0; g < groups_; ++g) {
    const GroupSpec& spec = options_.groups[g];
    GroupTable& table = at(slot, g);
    table.first_real = blocks_floor(skipped_tokens(spec, total), spec.block_tokens);
    table.blocks.assign(static_cast<std::size_t>(table.first_real), kNullBlock);
  }
}

void KvManager::grow(std::int32_t slot, std::int64_t upto) {
  pool_.context.reason = CacheReason::kGrow;
  for (std::size_t g = 0; g < groups_; ++g) {
    GroupTable& table = at(slot, g);
    const std::int64_t n = blocks_for(options_.groups[g], upto) - table.size();
    if (n <= 0) continue;
    pool_.context.group = static_cast<std::int32_t>(g);
    pool_.get(n, table.blocks);
  }
}

std::int64_t KvManager::commit_limit(std::size_t group, std::int64_t known) const {
  if (groups_ == 1) return known;
  const std::int64_t aligned = blocks_floor(known, options_.alignment) * options_.alignment;
  if (!drafts_[group] || aligned == 0) return aligned;
  return std::min(known, aligned + options_.groups[group].block_tokens);
}

void KvManager::commit(const KvRequest& request, std::int64_t tokens) {
  if (!options_.caching) return;
  const Watched watched(audit_, *this,
                        {.kind = KvCallKind::kCommit, .request = &request, .tokens = tokens});
  commit_known(request, tokens);
}

void KvManager::commit_known(const KvRequest& request, std::int64_t tokens) {
  for (std::size_t g = 0; g < groups_; ++g) {
    pool_.context.group = static_cast<std::int32_t>(g);
    const std::int64_t limit = commit_limit(g, tokens);
    commit_group(request, g, limit);
    if (options_.switches.partial_hashes) commit_prompt_end(request, g, limit);
  }
}

void KvManager::commit_group(const KvRequest& request, std::size_t group, std::int64_t limit) {
  GroupTable& table = at(request.slot, group);
  const GroupSpec& spec = options_.groups[group];
  const std::int64_t from = std::max<std::int64_t>(table.cached, 0);
  const std::int64_t to = std::min(blocks_floor(limit, spec.block_tokens), table.size());
  if (from >= to) return;
  const std::array ends = {request.prompt_tokens - 1, request.shared.value_or(0)};
  const std::span used(ends.data(), request.shared ? 2u : 1u);
  const std::int64_t ratio = spec.block_tokens / options_.hash_block;
  std::vector<std::string> hashes;
  for (std::int64_t i = std::max(from, table.first_real); i < to; ++i) {
    if (!retention_[group].keeps(i, used)) continue;
    const BlockHash& hash = request.chain[(i + 1) * ratio - 1];
    pool_.cache(table.blocks[static_cast<std::size_t>(i)], hash, static_cast<std::int32_t>(group));
    if (events_on_) hashes.push_back(hash_text(hash));
  }
  table.cached = to;
  if (events_on_) store_event(request, group, from, to, spec.block_tokens, std::move(hashes));
}

void KvManager::commit_prompt_end(const KvRequest& request, std::size_t group, std::int64_t limit) {
  const GroupSpec& spec = options_.groups[group];
  const GroupTable& table = at(request.slot, group);
  if (spec.kind != GroupKind::kFull) return;
  const std::int64_t hashes = request.prompt_tokens / options_.hash_block;
  const std::int64_t end = hashes * options_.hash_block;
  if (end % spec.block_tokens == 0) return;
  // Each time: where the block is full by now, its own key took the place of this one.
  const std::int64_t entry = end / spec.block_tokens;
  if (end > limit || entry >= table.size()) return;
  const bool fresh =
      pool_.cache_prompt_end(table.blocks[static_cast<std::size_t>(entry)],
                             request.chain[hashes - 1], static_cast<std::int32_t>(group));
  if (fresh && events_on_) {
    store_event(request, group, hashes - 1, hashes, options_.hash_block,
                {hash_text(request.chain[hashes - 1])});
  }
}

void KvManager::update_quiet(const KvRequest& request, std::int64_t known) {
  Quiet& quiet = quiet_[static_cast<std::size_t>(request.slot)];
  quiet = {kNever, kNever, kNever};
  const std::int64_t aligned =
      groups_ == 1 ? 0 : blocks_floor(known, options_.alignment) * options_.alignment;
  for (std::size_t g = 0; g < groups_; ++g) {
    const GroupSpec& spec = options_.groups[g];
    const GroupTable& table = this->table(request.slot, g);
    const std::int64_t block = spec.block_tokens;
    // With all rows that it will ever have a group asks for nothing more.
    const std::int64_t room = table.size() * block;
    const bool whole = spec.kind == GroupKind::kFirst && room >= spec.window;
    quiet.room = std::min(quiet.room, whole ? kNever : room);
    if (table.real() > 0 && spec.forgets()) {
      const std::int64_t end = (table.first_real + 1) * block;  // of the oldest real block
      const std::int64_t drop = spec.kind == GroupKind::kSliding
                                    ? end + spec.window - 1
                                    : blocks_ceil(end, spec.window) * spec.window;
      quiet.drop_at = std::min(quiet.drop_at, drop);
    }
    if (!options_.caching) continue;
    std::int64_t next =
        groups_ == 1 ? blocks_floor(known, block) * block + block : aligned + options_.alignment;
    // A flagged group also fills the block after the aligned end, token by token.
    if (drafts_[g] && groups_ > 1 && aligned > 0 && known < aligned + block) {
      next = spec.kind == GroupKind::kFull ? known + 1 : aligned + block;
    }
    quiet.commit_at = std::min(quiet.commit_at, next);
  }
}

void KvManager::collect_reversed(GroupTable& table, std::vector<std::int32_t>& out) const {
  const auto from = static_cast<std::size_t>(table.first_real);
  for (std::size_t i = table.blocks.size(); i > from; --i) out.push_back(table.blocks[i - 1]);
  table.blocks.clear();
  table.first_real = 0;
  table.cached = -1;
}

void KvManager::free(const KvRequest& request, CacheReason reason) {
  const Watched watched(audit_, *this, {.kind = KvCallKind::kFree, .request = &request});
  pool_.context.request = request.id;
  pool_.context.reason = reason;
  for (std::size_t g = 0; g < groups_; ++g) {
    pool_.context.group = static_cast<std::int32_t>(g);
    scratch_.clear();
    collect_reversed(at(request.slot, g), scratch_);
    pool_.release(scratch_);
  }
  quiet_[static_cast<std::size_t>(request.slot)] = {};
}

std::vector<std::int32_t> KvManager::take_tables(const KvRequest& request) {
  const Watched watched(audit_, *this, {.kind = KvCallKind::kTake, .request = &request});
  // All tables one after another, given back from the end: the last group first.
  std::vector<std::int32_t> out;
  for (std::size_t g = groups_; g > 0; --g) collect_reversed(at(request.slot, g - 1), out);
  quiet_[static_cast<std::size_t>(request.slot)] = {};
  return out;
}

void KvManager::release(std::span<const std::int32_t> blocks, CacheReason reason) {
  const Watched watched(audit_, *this, {.kind = KvCallKind::kRelease, .blocks = blocks});
  pool_.context.request = -1;
  pool_.context.group = -1;
  pool_.context.reason = reason;
  pool_.release(blocks);
}

bool KvManager::evict(std::span<const std::int32_t> blocks) {
  const Watched watched(audit_, *this, {.kind = KvCallKind::kEvict, .blocks = blocks});
  return pool_.evict(blocks);
}

std::int64_t KvManager::common_prefix(std::int32_t slot, std::size_t group) const {
  if (!options_.caching || options_.groups[group].kind != GroupKind::kFull) return 0;
  std::int64_t holders = 0;
  for (std::size_t s = 0; s < num_slots(); ++s) {
    holders += table(static_cast<std::int32_t>(s), group).blocks.empty() ? 0 : 1;
  }
  const GroupTable& t = table(slot, group);
  std::int64_t n = 0;
  while (n < t.size() && pool_.refs(t.blocks[static_cast<std::size_t>(n)]) == holders) ++n;
  return n;
}

bool KvManager::reset_prefix_cache() {
  const Watched watched(audit_, *this, {.kind = KvCallKind::kReset});
  pool_.context = {pool_.context.step, -1, -1, CacheReason::kReset};
  if (!pool_.reset()) return false;
  if (events_on_) events_.push_back({});
  return true;
}

void KvManager::keep_events(bool keep) {
  events_on_ = keep;
  pool_.keep_removed(keep);
}

void KvManager::flush_removed() {
  for (const PrefixKey& key : pool_.removed()) {
    KvEvent event;
    event.kind = KvEventKind::kBlockRemoved;
    event.hashes = {hash_text(key.hash)};
    event.group = key.group;
    events_.push_back(std::move(event));
  }
  pool_.removed().clear();
}

void KvManager::store_event(const KvRequest& request, std::size_t group, std::int64_t from,
                            std::int64_t to, std::int64_t block, std::vector<std::string> hashes) {
  flush_removed();
  const GroupSpec& spec = options_.groups[group];
  const std::int64_t ratio = block / options_.hash_block;
  KvEvent event;
  event.kind = KvEventKind::kBlockStored;
  event.hashes = std::move(hashes);
  if (from > 0) event.parent = hash_text(request.chain[from * ratio - 1]);
  event.tokens.assign(request.tokens.begin() + from * block, request.tokens.begin() + to * block);
  event.block_tokens = block;
  event.adapter = request.extras.adapter;
  event.group = static_cast<std::int32_t>(group);
  event.spec_kind = !spec.forgets()                    ? "full_attention"
                    : spec.kind == GroupKind::kSliding ? "sliding_window"
                                                       : "chunked_local_attention";
  event.window = spec.window;
  events_.push_back(std::move(event));
}

std::vector<KvEvent> KvManager::take_events() {
  flush_removed();
  return std::exchange(events_, {});
}

}  // namespace attnscope
