#include "engine/sched/serving.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/model/numbers.h"

namespace attnscope {
namespace {

RequestState state_of(RequestStatus status) {
  switch (status) {
    case RequestStatus::kWaiting:
      return RequestState::kWaiting;
    case RequestStatus::kRunning:
      return RequestState::kRunning;
    case RequestStatus::kPreempted:
      return RequestState::kPreempted;
    case RequestStatus::kAborted:
      return RequestState::kAborted;
    case RequestStatus::kStopped:
    case RequestStatus::kLengthCapped:
      break;
  }
  return RequestState::kFinished;
}

// By block, whether an event of this kind named it from `first` on.
std::vector<bool> blocks_of(const std::vector<CacheEvent>& events, std::size_t first,
                            CacheEventKind kind, std::int64_t end_block) {
  std::vector<bool> out(to_size(end_block), false);
  for (std::size_t i = first; i < events.size(); ++i) {
    if (events[i].kind == kind && events[i].block >= 0) out[to_size(events[i].block)] = true;
  }
  return out;
}

}  // namespace

class Serving::Listening : public CacheObserver {
 public:
  explicit Listening(Serving& serving) : serving_(serving) {
    serving_.scheduler_.kv().pool().set_observer(this);
  }
  ~Listening() override { serving_.scheduler_.kv().pool().set_observer(nullptr); }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;
  void on_event(const CacheEvent& event) override { serving_.events_.push_back(event); }

 private:
  Serving& serving_;
};

Result<Serving> Serving::make(const SchedulerOptions& options, std::vector<Request> requests) {
  SchedulerOptions own = options;
  own.keep_finished = true;
  own.steps_in_flight = 1;
  Result<BlockScheduler> scheduler = BlockScheduler::make(own);
  if (!scheduler) return scheduler.error();
  Serving serving(std::move(*scheduler));
  serving.requests_ = std::move(requests);
  serving.slots_.assign(serving.requests_.size(), -1);
  serving.verified_.assign(serving.requests_.size(), 0);
  serving.proposed_.assign(serving.requests_.size(), -1);
  serving.contents_.resize(to_size(serving.end_block()));
  // Whether each of them can be added shows now and not in the step of its arrival.
  BlockScheduler trial = serving.scheduler_;
  for (std::size_t i = 0; i < serving.requests_.size(); ++i) {
    Request& r = serving.requests_[i];
    r.id = static_cast<std::int32_t>(i);
    if (r.prompt_tokens <= 0) r.prompt_tokens = r.num_tokens();
    r.state = RequestState::kExpected;
    SchedRequest request;
    request.id = r.id;
    request.tokens = r.tokens;
    if (auto ok = trial.add(std::move(request)); !ok) return ok.error();
  }
  return serving;
}

bool Serving::done() const {
  return scheduler_.done() && std::ranges::none_of(requests_, [](const Request& r) {
           return r.state == RequestState::kExpected;
         });
}

void Serving::arrive(Request& r) {
  SchedRequest request;
  request.id = r.id;
  request.name = r.name;
  request.tokens = r.tokens;
  request.prompt_tokens = r.prompt_tokens;
  request.priority = r.priority;
  request.arrival = static_cast<double>(r.arrival_step);
  request.stop.max_tokens = r.max_new_tokens;
  // make() has seen that it can be added.
  if (!scheduler_.add(std::move(request))) return;
  slots_[to_size(r.id)] = scheduler_.find(r.id)->slot;
  r.state = RequestState::kWaiting;
}

void Serving::begin_step(std::int64_t step) {
  events_.clear();
  scheduler_.kv().pool().context = {step, -1, -1, CacheReason::kNone};
  const Listening listening(*this);
  std::int64_t come = step;
  if (scheduler_.done()) {
    std::int64_t next = std::numeric_limits<std::int64_t>::max();
    for (const Request& r : requests_) {
      if (r.state == RequestState::kExpected) next = std::min(next, r.arrival_step);
    }
    come = std::max(come, next);
  }
  for (Request& r : requests_) {
    if (r.state == RequestState::kExpected && r.arrival_step <= come) arrive(r);
  }
  refresh();
  live_.clear();
  for (const auto& slots : {scheduler_.running(), scheduler_.waiting()}) {
    for (const std::int32_t slot : slots) {
      live_.push_back(static_cast<std::int32_t>(scheduler_.request(slot).id));
    }
  }
  step_ = {};
  draft();
}

// For every request that decodes. One that may end with its next token has nothing to draft.
void Serving::draft() {
  drafts_.assign(live_.size(), {});
  for (std::size_t row = 0; row < live_.size(); ++row) {
    const Request& r = requests_[to_size(live_[row])];
    if (r.state != RequestState::kRunning || r.computed + 1 != r.num_tokens()) continue;
    drafts_[row] = drafts_of(r);
    if (drafts_[row].empty()) continue;
    scheduler_.set_drafts(r.id, static_cast<std::int64_t>(drafts_[row].size()));
  }
}

std::vector<std::int32_t> Serving::drafts_of(const Request& r) const {
  const std::int64_t most = r.max_len() - 1 - r.num_tokens();
  if (drafter_ != nullptr) {
    return drafter_->draft(r.id, r.num_tokens(), most, verified_[to_size(r.id)]);
  }
  const std::int32_t proposed = proposed_[to_size(r.id)];
  if (proposed < 0 || most < 1) return {};
  return {proposed};
}

std::int32_t Serving::row_of(std::int64_t request) const {
  return static_cast<std::int32_t>(std::ranges::find(live_, request) - live_.begin());
}

const ServingStep& Serving::schedule() {
  const std::size_t first_event = events_.size();
  std::vector<std::optional<MissReport>> misses = explain_waiting();
  {
    const Listening listening(*this);
    plan_ = scheduler_.schedule();
  }
  const std::size_t rows = live_.size();
  step_ = {};
  step_.num_scheduled_tokens.assign(rows, 0);
  step_.joins.assign(rows, 0);
  step_.lost_to.assign(rows, -1);
  step_.matching.assign(rows, 0);
  for (const std::int32_t id : live_) {
    step_.num_computed.push_back(static_cast<std::int32_t>(requests_[to_size(id)].computed));
  }
  for (std::size_t i = 0; i < plan_.preempted.size(); ++i) {
    const auto row = to_size(row_of(plan_.preempted[i]));
    step_.lost_to[row] = row_of(plan_.preempted_for[i]);
    step_.num_computed[row] = 0;
  }
  for (const ScheduledTokens& s : plan_.scheduled) {
    const auto row = to_size(row_of(s.id));
    step_.num_scheduled_tokens[row] = static_cast<std::int32_t>(s.tokens);
    step_.joins[row] = s.admitted ? 1 : 0;
    step_.num_computed[row] =
        static_cast<std::int32_t>(scheduler_.request(s.slot).computed - s.tokens);
  }
  for (const SwapMove& move : plan_.swapped_in) {
    const auto row = to_size(row_of(move.request));
    step_.joins[row] = 2;
    step_.matching[row] = step_.num_computed[row];
  }
  step_.misses = std::move(misses);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::int64_t end = step_.num_computed[row] + step_.num_scheduled_tokens[row];
    const std::int64_t behind = end - requests_[to_size(live_[row])].num_tokens();
    drafts_[row].resize(std::min(drafts_[row].size(), to_size(std::max<std::int64_t>(behind, 0))));
    // Of what it found in this very step the report knows nothing.
    const bool same = step_.misses[row] && step_.misses[row]->hit == step_.num_computed[row];
    if (step_.joins[row] == 0 || !same) step_.misses[row].reset();
  }
  if (!plan_.preempted.empty()) forget_uncomputed(first_event);
  note_contents(first_event);
  for (std::size_t row = 0; row < rows; ++row) {
    if (step_.joins[row] == 1) note_shared(static_cast<std::int32_t>(row), first_event);
  }
  refresh();
  return step_;
}

// Before the step changes what can be found: of those who may join.
std::vector<std::optional<MissReport>> Serving::explain_waiting() const {
  std::vector<std::optional<MissReport>> misses(live_.size());
  if (!pool().caching()) return misses;
  const std::size_t running = scheduler_.running().size();
  const auto most = std::min(live_.size(), to_size(options().max_requests));
  for (std::size_t row = running; row < most; ++row) {
    misses[row] = explain_miss(scheduler_.kv(), scheduler_.request(slot(live_[row])));
  }
  return misses;
}

// A request that got tokens and was preempted later in the same step may have given keys to blocks
// whose rows nobody will compute: nobody may find them.
void Serving::forget_uncomputed(std::size_t first_event) {
  std::vector<std::int32_t> blocks;
  for (std::size_t i = first_event; i < events_.size(); ++i) {
    const CacheEvent& e = events_[i];
    // Taken for other content since.
    if (e.kind == CacheEventKind::kUnhash) std::erase(blocks, e.block);
    if (e.kind != CacheEventKind::kCache) continue;
    if (std::ranges::find(plan_.preempted, e.request) != plan_.preempted.end()) {
      blocks.push_back(e.block);
    }
  }
  if (blocks.empty()) return;
  const Listening listening(*this);
  scheduler_.kv().pool().context.request = -1;
  scheduler_.kv().evict(blocks);
}

void Serving::note_contents(std::size_t first_event) {
  std::vector<std::int32_t>& fresh = step_.fresh;
  for (std::size_t i = first_event; i < events_.size(); ++i) {
    const CacheEvent& e = events_[i];
    if (e.kind == CacheEventKind::kAllocate && e.block >= 0) fresh.push_back(e.block);
  }
  std::ranges::sort(fresh);
  fresh.erase(std::ranges::unique(fresh).begin(), fresh.end());
  for (const std::int32_t b : fresh) {
    step_.replaced.push_back(content(b));
    contents_[to_size(b)] = {};
  }
  // New blocks are the last ones of a table; what was adopted comes before them.
  for (const ScheduledTokens& s : plan_.scheduled) {
    for (std::size_t g = 0; g < scheduler_.kv().num_groups(); ++g) {
      const GroupTable& table = group_table(s.slot, g);
      for (std::int64_t i = table.size() - 1; i >= table.first_real; --i) {
        const std::int32_t block = table.blocks[to_size(i)];
        Content& content = contents_[to_size(block)];
        if (content.writer >= 0 || !std::ranges::binary_search(fresh, block)) break;
        content = {static_cast<std::int32_t>(s.id), static_cast<std::int32_t>(g),
                   static_cast<std::int32_t>(i)};
      }
    }
  }
}

void Serving::note_shared(std::int32_t row, std::size_t first_event) {
  const std::int32_t id = live_[to_size(row)];
  const std::int64_t found = step_.num_computed[to_size(row)];
  if (found == 0) return;
  ++hits_;
  hit_tokens_ += found;
  const std::vector<bool> keyed =
      blocks_of(events_, first_event, CacheEventKind::kCache, end_block());
  const std::vector<std::int32_t>& own = requests_[to_size(id)].tokens;
  std::int64_t matching = found;
  for (std::size_t g = 0; g < scheduler_.kv().num_groups(); ++g) {
    const GroupTable& table = group_table(slot(id), g);
    const std::int64_t block_tokens = options().kv.groups[g].block_tokens;
    for (std::int64_t i = table.first_real; i < full_blocks(options().kv.groups[g], found); ++i) {
      const std::int32_t block = table.blocks[to_size(i)];
      const Content& content = contents_[to_size(block)];
      step_.shared.push_back({id, content.writer, static_cast<std::int32_t>(g),
                              static_cast<std::int32_t>(i), block, keyed[to_size(block)]});
      // Token by token: hashes are what is looked up, not what is believed.
      if (content.writer < 0 || content.index != i) {
        matching = 0;
        continue;
      }
      const std::vector<std::int32_t>& theirs = requests_[to_size(content.writer)].tokens;
      const auto end = static_cast<std::ptrdiff_t>(
          std::min<std::int64_t>({(i + 1) * block_tokens, static_cast<std::int64_t>(own.size()),
                                  static_cast<std::int64_t>(theirs.size())}));
      const auto equal = std::mismatch(own.begin(), own.begin() + end, theirs.begin()).first;
      if (equal - own.begin() < (i + 1) * block_tokens) {
        matching = std::min<std::int64_t>(matching, equal - own.begin());
      }
    }
  }
  step_.matching[to_size(row)] = static_cast<std::int32_t>(matching);
}

std::vector<std::int32_t> Serving::finish_step(std::span<const std::int32_t> sampled,
                                               std::span<const std::int32_t> accepted,
                                               std::span<const std::int32_t> proposed) {
  const Listening listening(*this);
  std::vector<std::vector<std::int32_t>> tokens;
  std::vector<std::int64_t> ended;
  for (const ScheduledTokens& s : plan_.scheduled) {
    const SchedRequest& r = scheduler_.request(s.slot);
    const auto row = to_size(row_of(s.id));
    const std::int32_t token = sampled[row];
    const std::vector<std::int32_t>& drafts = drafts_[row];
    const std::int32_t held = accepted.empty() ? 0 : accepted[row];
    std::vector<std::int32_t>& got = tokens.emplace_back(drafts.begin(), drafts.begin() + held);
    if (token >= 0) got.push_back(token);
    if (!drafts.empty()) ++verified_[to_size(s.id)];
    proposed_[to_size(s.id)] = proposed.empty() ? -1 : proposed[row];
    drafted_ += static_cast<std::int64_t>(drafts.size());
    accepted_ += held;
    // Without a token (a row of NaN logits) there is nothing to go on with.
    if (token < 0 && r.computed >= r.num_tokens()) ended.push_back(s.id);
  }
  scheduler_.results(plan_, tokens);
  for (const std::int64_t id : ended) {
    scheduler_.abort(id);
    Request& r = requests_[to_size(id)];
    if (r.abort_step > plan_.step + 1) r.abort_step = -1;
  }
  for (Request& r : requests_) {
    if (r.abort_step < 0 || r.abort_step > plan_.step + 1 || is_over(r.state)) continue;
    if (r.state == RequestState::kExpected) {
      r.state = RequestState::kAborted;  // taken away before it came
    } else {
      scheduler_.abort(r.id);
    }
  }
  refresh();
  std::vector<std::int32_t> over;
  for (const std::int64_t id : scheduler_.take_finished()) {
    over.push_back(static_cast<std::int32_t>(id));
  }
  return over;
}

void Serving::refresh() {
  for (Request& r : requests_) {
    const std::int32_t slot = this->slot(r.id);
    if (slot < 0) continue;
    const SchedRequest& s = scheduler_.request(slot);
    r.tokens.insert(r.tokens.end(), s.tokens.begin() + static_cast<std::ptrdiff_t>(r.tokens.size()),
                    s.tokens.end());
    r.computed = s.computed - s.in_flight;
    r.state = state_of(s.status);
    r.hit_tokens = s.hit_tokens;
    r.preemptions = s.preemptions;
    r.recomputed = s.recomputed;
  }
}

std::span<const std::int32_t> Serving::table(std::int32_t request, int group) const {
  const bool known = request >= 0 && to_size(request) < slots_.size() && group >= 0 &&
                     to_size(group) < scheduler_.kv().num_groups();
  if (!known || slot(request) < 0) return {};
  return group_table(slot(request), to_size(group)).blocks;
}

std::vector<BlockOwner> Serving::owners() const {
  std::vector<BlockOwner> owners(to_size(end_block()));
  for (std::int32_t block = first_block(); block < end_block(); ++block) {
    BlockOwner& owner = owners[to_size(block)];
    owner.refs = pool().refs(block);
    owner.keyed = pool().hashed(block);
    if (owner.refs == 0 && !owner.keyed) continue;
    const BlockOwner held = content(block);
    owner.group = held.group;
    owner.index = held.index;
    owner.writer = held.writer;
  }
  // The last one that writes its id was admitted first.
  const std::vector<std::int32_t>& running = scheduler_.running();
  for (auto slot = running.rbegin(); slot != running.rend(); ++slot) {
    const auto id = static_cast<std::int32_t>(scheduler_.request(*slot).id);
    for (std::size_t g = 0; g < scheduler_.kv().num_groups(); ++g) {
      const GroupTable& table = group_table(*slot, g);
      for (std::int64_t i = table.first_real; i < table.size(); ++i) {
        owners[to_size(table.blocks[to_size(i)])].request = id;
      }
    }
  }
  return owners;
}

BlockOwner Serving::content(std::int32_t block) const {
  const Content& c = contents_[to_size(block)];
  BlockOwner out;
  out.group = c.group;
  out.index = c.index;
  out.writer = c.writer;
  return out;
}

std::vector<BlockKey> Serving::keys() const {
  std::vector<BlockKey> keys;
  if (!pool().caching()) return keys;
  const std::int64_t hash_block = options().kv.hash_block;
  const auto add = [&](std::int32_t block, const PrefixKey& key) {
    const Content& content = contents_[to_size(block)];
    BlockKey& out = keys.emplace_back();
    out.block = block;
    out.group = key.group;
    out.hash = key.hash.low;
    out.writer = content.writer;
    if (content.writer < 0 || slot(content.writer) < 0) return;
    const std::int64_t block_tokens = options().kv.groups[to_size(key.group)].block_tokens;
    const HashChain& chain = scheduler_.request(slot(content.writer)).chain;
    // From the block's end backwards: a prompt may end before it.
    const std::int64_t last = (content.index + 1) * block_tokens / hash_block;
    for (std::int64_t n = last; n > content.index * block_tokens / hash_block; --n) {
      if (n > chain.size() || chain[n - 1] != key.hash) continue;
      out.tokens = n * hash_block;
      out.prompt_end = n < last;
      return;
    }
  };
  for (std::int32_t b = first_block(); b < end_block(); ++b) {
    if (!pool().map().has_primary(b)) continue;
    add(b, pool().map().primary(b));
    if (!pool().map().has_secondary(b)) continue;
    for (const PrefixKey& key : pool().map().secondaries(b)) add(b, key);
  }
  return keys;
}

PoolUsage Serving::usage() const {
  PoolUsage usage;
  usage.null = 1;
  usage.free_keyed = pool().free_with_key();
  usage.free_empty = num_free() - usage.free_keyed;
  usage.held = pool().usable() - num_free();
  return usage;
}

ServingTotals Serving::totals() const {
  ServingTotals totals;
  totals.hits = hits_;
  totals.hit_tokens = hit_tokens_;
  const SchedulerCounters& counters = scheduler_.counters();
  totals.blocks_out = counters.blocks_out;
  totals.blocks_in = counters.blocks_in;
  totals.swaps_refused = counters.swaps_refused;
  totals.drafted = drafted_;
  totals.accepted = accepted_;
  for (const Request& r : requests_) {
    totals.preemptions += r.preemptions;
    totals.recomputed += r.recomputed;
    if (r.state != RequestState::kAborted) continue;
    ++totals.aborted;
    totals.tokenless += r.ended_tokenless() ? 1 : 0;
  }
  return totals;
}

std::vector<std::int32_t> Serving::blocks_with_content() const {
  std::vector<std::int32_t> ids;
  for (std::int32_t b = first_block(); b < end_block(); ++b) {
    if (pool().refs(b) > 0 || pool().hashed(b)) ids.push_back(b);
  }
  return ids;
}

}  // namespace attnscope
