#include "engine/cache/kv_auditor.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnscope {

namespace {

// "allocate of request 3".
std::string call_text(const KvCall& call) {
  const char* name = kv_call_name(call.kind);
  return call.request == nullptr ? name : fmt::format("{} of request {}", name, call.request->id);
}

}  // namespace

bool KvEventMirror::apply(const KvEvent& event) {
  switch (event.kind) {
    case KvEventKind::kBlockStored:
      for (const std::string& hash : event.hashes) ++blocks_[{hash, event.group}];
      return true;
    case KvEventKind::kBlockRemoved: {
      bool known = true;
      for (const std::string& hash : event.hashes) {
        const auto it = blocks_.find({hash, event.group});
        if (it == blocks_.end()) {
          known = false;
        } else if (--it->second == 0) {
          blocks_.erase(it);
        }
      }
      return known;
    }
    case KvEventKind::kAllBlocksCleared:
      blocks_.clear();
      return true;
  }
  return false;
}

std::int64_t KvEventMirror::count(const std::string& hash, std::int32_t group) const {
  const auto it = blocks_.find({hash, group});
  return it == blocks_.end() ? 0 : it->second;
}

Finding check_events(const KvManager& kv, const KvEventMirror& mirror) {
  const char* name = "I15 events";
  const PrefixMap& map = kv.pool().map();
  const std::vector<PrefixKey> keys = map.keys();
  for (const PrefixKey& key : keys) {
    const auto blocks = static_cast<std::int64_t>(map.blocks(key).size());
    const std::int64_t told = mirror.count(hash_text(key.hash), key.group);
    if (blocks != told) {
      return Violation{name, fmt::format("{} blocks of group {} have hash {}, events tell of {}",
                                         blocks, key.group, hash_text(key.hash), told)};
    }
  }
  if (keys.size() != mirror.size()) {
    return Violation{
        name, fmt::format("the map has {} keys, events tell of {}", keys.size(), mirror.size())};
  }
  return {};
}

void KvAuditor::before(const KvManager& kv, const KvCall& call) {
  before_ = take_snapshot(kv);
  predicted_ = 0;
  if (call.kind != KvCallKind::kAllocate) return;
  const Allocation& a = *call.allocation;
  const std::int64_t most = kv.options().max_model_len;
  const std::int64_t hit = a.hit == nullptr ? 0 : a.hit->tokens;
  const std::int64_t total = std::min(call.request->computed + hit + a.external, most);
  const std::int64_t upto = std::min(total + a.new_tokens + a.lookahead, most);
  predicted_ = kv.need(*call.request, upto, total, a.hit, false);
}

void KvAuditor::after(const KvManager& kv, const KvCall& call) {
  ++calls_;
  if (!findings_.empty()) return;
  const KvSnapshot state = take_snapshot(kv);
  if (call.kind == KvCallKind::kEvict || call.kind == KvCallKind::kReset) keys_taken_away_ = true;
  note_drop_point(kv, call);
  findings_ = check_transition({kv, call, before_, state, predicted_});
  for (Violation& more : check(kv, call, state)) findings_.push_back(std::move(more));
  for (Violation& found : findings_) found.met = call_text(call);
}

void KvAuditor::note_drop_point(const KvManager& kv, const KvCall& call) {
  drop_points_.resize(kv.num_slots(), -1);
  if (call.request == nullptr || call.request->slot < 0) return;
  std::int64_t& point = drop_points_[static_cast<std::size_t>(call.request->slot)];
  if (call.kind == KvCallKind::kFree || call.kind == KvCallKind::kTake) point = -1;
  if (call.kind != KvCallKind::kAllocate) return;
  if (call.outcome != Allocated::kYes && call.outcome != Allocated::kTooFewFree) return;
  const Allocation& a = *call.allocation;
  const std::int64_t hit = a.hit == nullptr ? 0 : a.hit->tokens;
  point = std::min(call.request->computed + hit + a.external, kv.options().max_model_len);
  if (kv.options().switches.window_basis == WindowBasis::kProcessed) {
    point = std::max<std::int64_t>(point - call.request->in_flight, 0);
  }
}

std::vector<Violation> KvAuditor::check(const KvManager& kv, const KvCall& call,
                                        const KvSnapshot& state) {
  std::vector<std::int32_t> pinned = pins ? pins() : std::vector<std::int32_t>();
  // Between take and release the blocks are on their way to who pins them, and back.
  if (call.kind == KvCallKind::kTake) {
    for (std::size_t g = 0; g < kv.num_groups(); ++g) {
      const std::size_t place = static_cast<std::size_t>(call.request->slot) * kv.num_groups() + g;
      for (const std::int32_t b : before_.tables[place]) {
        if (b != 0) pinned.push_back(b);
      }
    }
  } else if (call.kind == KvCallKind::kRelease) {
    for (const std::int32_t b : call.blocks) {
      const auto it = std::find(pinned.begin(), pinned.end(), b);
      if (it != pinned.end()) pinned.erase(it);
    }
  }
  return check_state({kv, state, pinned, request, drop_points_, lookahead, keys_taken_away_});
}

}  // namespace attnscope
