#include "engine/sched/block_scheduler.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnscope {
namespace {

Result<void> check_chunks(const SchedulerOptions& o) {
  if (!o.chunks.on()) return {};
  if (o.chunks.least < 1 || o.chunks.least > o.chunks.most) {
    return bad_input(
        fmt::format("adaptive_chunks go from {} to {} tokens", o.chunks.least, o.chunks.most),
        "give a least of 1 or more, and a most that is not below it");
  }
  if (o.prefill_threshold > 0) {
    return bad_input("adaptive_chunks beside a limit for each prefill", "give one of them");
  }
  if (!o.chunked_prefill) {
    return bad_input("adaptive_chunks cut prompts, and these are computed whole",
                     "leave adaptive_chunks out for this model");
  }
  return {};
}

Result<void> check_swap(const SchedulerOptions& o) {
  if (o.swap_blocks == 0) return {};
  if (o.swap_blocks < 0) {
    return bad_input(fmt::format("swap_blocks is {}", o.swap_blocks), "it must not be negative");
  }
  if (o.kv.caching) {
    return bad_input("blocks are swapped to host memory, where no lookup finds them",
                     "set caching to false, or leave swap_blocks out");
  }
  if (o.steps_in_flight > 1) {
    return bad_input(
        fmt::format("blocks are swapped while {} steps are in flight", o.steps_in_flight),
        "swap with one step in flight: rows of others are still to come");
  }
  return {};
}

}  // namespace

Result<SchedulerOptions> check_options(SchedulerOptions options) {
  const auto positive = [](const char* name, std::int64_t value) {
    return bad_input(fmt::format("{} is {}", name, value), "it must be at least 1");
  };
  if (options.token_budget < 1) return positive("token_budget", options.token_budget);
  if (options.max_requests < 1) return positive("max_seqs", options.max_requests);
  if (options.steps_in_flight < 1) return positive("steps in flight", options.steps_in_flight);
  if (options.lookahead < 0) {
    return bad_input(fmt::format("lookahead is {}", options.lookahead), "it must not be negative");
  }
  const bool in_flight = options.kv.switches.cap == CapBasis::kInFlight;
  options.kv.cap_tokens = options.token_budget * (in_flight ? options.steps_in_flight : 1);
  if (auto ok = check_chunks(options); !ok) return ok.error();
  if (auto ok = check_swap(options); !ok) return ok.error();
  Result<KvOptions> kv = check_options(options.kv);
  if (!kv) return kv.error();
  options.kv = *kv;
  return options;
}

Result<BlockScheduler> BlockScheduler::make(const SchedulerOptions& options) {
  Result<SchedulerOptions> checked = check_options(options);
  if (!checked) return checked.error();
  return BlockScheduler(*checked);
}

BlockScheduler::BlockScheduler(const SchedulerOptions& options)
    : options_(options), kv_(options.kv), waiting_(options.policy), host_(options.swap_blocks) {}

Result<void> BlockScheduler::add(SchedRequest request) {
  if (request.tokens.empty()) {
    return bad_input(fmt::format("request {} has no token", request.id),
                     "a prompt has at least one");
  }
  if (request.num_tokens() >= options_.kv.max_model_len) {
    return bad_input(fmt::format("request {} has {} tokens, max_model_len is {}", request.id,
                                 request.num_tokens(), options_.kv.max_model_len),
                     "shorten the prompt or raise max_model_len");
  }
  if (alive(request.id)) {
    return bad_input(fmt::format("request {} is already alive", request.id),
                     "ids of live requests differ");
  }
  if (request.prompt_tokens == 0) request.prompt_tokens = request.num_tokens();
  request.status = RequestStatus::kWaiting;
  kv_.add(request);
  const std::int32_t slot = request.slot;
  slot_of_.emplace(request.id, slot);
  waiting_.add(request);
  if (static_cast<std::size_t>(slot) >= requests_.size()) {
    requests_.push_back(std::move(request));
  } else {
    at(slot) = std::move(request);
  }
  return {};
}

const SchedRequest* BlockScheduler::find(std::int64_t id) const {
  const auto it = slot_of_.find(id);
  return it == slot_of_.end() ? nullptr : &request(it->second);
}

SchedRequest* BlockScheduler::find(std::int64_t id) {
  const auto it = slot_of_.find(id);
  return it == slot_of_.end() ? nullptr : &at(it->second);
}

const StepPlan& BlockScheduler::schedule() {
  plan_.step = step_;
  plan_.scheduled.clear();
  plan_.preempted.clear();
  plan_.preempted_for.clear();
  plan_.swapped_out.clear();
  plan_.swapped_in.clear();
  plan_.total_tokens = 0;
  plan_.free_before = kv_.pool().num_free();
  plan_.chunk = chunk_limit();
  kv_.pool().context.step = step_;
  tell_chunk();
  std::int64_t budget = options_.token_budget;
  schedule_running(budget);
  if (plan_.preempted.empty()) schedule_waiting(budget);
  for (const ScheduledTokens& s : plan_.scheduled) {
    SchedRequest& r = at(s.slot);
    r.computed += s.tokens;
    r.in_flight += s.tokens;
    r.last_step = step_;
    plan_.total_tokens += s.tokens;
    // This step will sample a token that a step in flight cannot know yet.
    if (options_.steps_in_flight > 1 && r.computed >= r.num_tokens() + r.placeholders) {
      ++r.placeholders;
    }
  }
  counters_.scheduled_tokens += plan_.total_tokens;
  plan_.common_prefix.assign(kv_.num_groups(), 0);
  for (std::size_t g = 0; g < kv_.num_groups() && !running_.empty(); ++g) {
    plan_.common_prefix[g] = kv_.common_prefix(running_.front(), g);
  }
  ++step_;
  return plan_;
}

std::int64_t BlockScheduler::chunk_limit() const {
  const AdaptiveChunks& chunks = options_.chunks;
  if (!chunks.on()) return options_.prefill_threshold;
  const BlockPool& pool = kv_.pool();
  if (pool.usable() == 0) return chunks.least;
  return chunks.least + (chunks.most - chunks.least) * pool.num_free() / pool.usable();
}

void BlockScheduler::tell_chunk() {
  BlockPool& pool = kv_.pool();
  if (!options_.chunks.on() || pool.observer() == nullptr) return;
  pool.context.request = pool.context.group = -1;
  pool.tell(CacheEventKind::kChunk, -1, CacheReason::kNone, plan_.chunk);
}

void BlockScheduler::schedule_running(std::int64_t& budget) {
  std::size_t i = 0;
  while (i < running_.size() && budget > 0) {
    const std::int32_t slot = running_[i];
    SchedRequest& r = at(slot);
    std::int64_t n = r.num_tokens() + r.drafts + r.placeholders - r.computed;
    if (plan_.chunk > 0) n = std::min(n, plan_.chunk);
    n = std::min({n, budget, options_.kv.max_model_len - 1 - r.computed});
    if (n <= 0) {
      ++i;
      continue;
    }
    Allocation a;
    a.new_tokens = n;
    a.lookahead = options_.lookahead;
    while (kv_.allocate(r, a) != Allocated::kYes) {
      ++counters_.failed_allocations;
      const std::size_t victim = choose_victim();
      const std::int32_t victim_slot = running_[victim];
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(victim));
      const std::int64_t returned = unplan(victim_slot);
      budget += returned;
      const bool below = options_.kv.switches.victim_cursor == VictimCursor::kBelowCursor
                             ? victim < i
                             : returned > 0;
      if (below) --i;
      preempt(victim_slot, true);
      plan_.preempted_for.push_back(r.id);
      if (victim_slot == slot) return;
    }
    // What the budget left no room for is not computed, and nothing of it can be rejected.
    r.drafts =
        std::clamp<std::int64_t>(r.computed + n - r.num_tokens() - r.placeholders, 0, r.drafts);
    plan_tokens(r, n, false);
    budget -= n;
    ++i;
  }
}

std::size_t BlockScheduler::choose_victim() const {
  if (options_.policy == SchedulePolicy::kFcfs) return running_.size() - 1;
  std::size_t worst = 0;
  for (std::size_t i = 1; i < running_.size(); ++i) {
    const SchedRequest& a = request(running_[i]);
    const SchedRequest& b = request(running_[worst]);
    if (a.priority > b.priority || (a.priority == b.priority && a.arrival > b.arrival)) worst = i;
  }
  return worst;
}

void BlockScheduler::preempt(std::int32_t slot, bool may_swap) {
  SchedRequest& r = at(slot);
  const bool kept = may_swap && swap_out(r);
  tell(CacheEventKind::kPreempt, r, kept ? CacheReason::kSwap : CacheReason::kOutOfBlocks,
       kept ? 0 : r.computed);
  give_back(r, kept ? CacheReason::kSwap : CacheReason::kPreempt);
  r.status = RequestStatus::kPreempted;
  r.computed_before = kept ? 0 : r.computed;
  r.computed = 0;
  r.drafts = 0;
  r.placeholders = 0;
  ++r.preemptions;
  ++counters_.preemptions;
  waiting_.put_back(r);
  plan_.preempted.push_back(r.id);
}

// Rows that a later token sees, and that have been computed: room for tokens to come stays behind.
bool BlockScheduler::swap_out(SchedRequest& r) {
  if (host_.size() == 0 || r.computed == 0) return false;
  std::vector<SwappedTable> tables(kv_.num_groups());
  std::vector<std::int64_t> ends;
  std::int64_t n = 0;
  for (std::size_t g = 0; g < tables.size(); ++g) {
    const GroupSpec& spec = options_.kv.groups[g];
    tables[g].nulls = blocks_floor(skipped_tokens(spec, r.computed), spec.block_tokens);
    ends.push_back(blocks_for(spec, r.computed));
    n += ends[g] - tables[g].nulls;
  }
  if (n > host_.num_free()) {
    ++counters_.swaps_refused;
    return false;
  }
  kv_.pool().context.request = r.id;
  for (std::size_t g = 0; g < tables.size(); ++g) {
    const std::int64_t first = tables[g].nulls;
    tables[g].blocks = host_.take(ends[g] - first);
    kv_.pool().context.group = static_cast<std::int32_t>(g);
    for (std::size_t i = 0; i < tables[g].blocks.size(); ++i) {
      const auto index = first + static_cast<std::int64_t>(i);
      const std::int32_t host = tables[g].blocks[i];
      const std::int32_t block = kv_.table(r.slot, g).blocks[static_cast<std::size_t>(index)];
      plan_.swapped_out.push_back(
          {r.id, static_cast<std::int32_t>(g), static_cast<std::int32_t>(index), block, host});
      kv_.pool().tell(CacheEventKind::kSwapOut, block, CacheReason::kSwap, host);
    }
  }
  counters_.blocks_out += n;
  ++r.swaps;
  r.swapped_tokens = r.computed;
  r.swapped = std::move(tables);
  return true;
}

void BlockScheduler::swap_in(SchedRequest& r) {
  kv_.pool().context.request = r.id;
  for (std::size_t g = 0; g < r.swapped.size(); ++g) {
    kv_.pool().context.group = static_cast<std::int32_t>(g);
    for (std::size_t i = 0; i < r.swapped[g].blocks.size(); ++i) {
      const auto index = r.swapped[g].nulls + static_cast<std::int64_t>(i);
      const std::int32_t host = r.swapped[g].blocks[i];
      const std::int32_t block = kv_.table(r.slot, g).blocks[static_cast<std::size_t>(index)];
      plan_.swapped_in.push_back(
          {r.id, static_cast<std::int32_t>(g), static_cast<std::int32_t>(index), block, host});
      kv_.pool().tell(CacheEventKind::kSwapIn, block, CacheReason::kSwap, host);
      ++counters_.blocks_in;
    }
  }
  forget_swapped(r);
}

void BlockScheduler::forget_swapped(SchedRequest& r) {
  for (const SwappedTable& table : r.swapped) host_.give_back(table.blocks);
  r.swapped.clear();
  r.swapped_tokens = 0;
}

void BlockScheduler::schedule_waiting(std::int64_t& budget) {
  while (!waiting_.empty() && budget > 0 &&
         static_cast<std::int64_t>(running_.size()) < options_.max_requests) {
    if (!admit_head(budget)) return;
  }
}

bool BlockScheduler::admit_head(std::int64_t& budget) {
  const std::int32_t slot = waiting_.head();
  SchedRequest& r = at(slot);
  // What it has in host memory nobody has to find: blocks for it are all that it waits for.
  const bool comes_back = r.swapped_tokens > 0;
  const PrefixHit& hit = kv_.lookup(r);
  ++counters_.lookups;
  counters_.hit_tokens += hit.tokens;
  if (options_.kv.switches.stats == StatsPoint::kLookup) count_lookup(r, hit.tokens);
  const std::int64_t found = comes_back ? r.swapped_tokens : hit.tokens;
  std::int64_t n = r.num_tokens() - found;
  if (plan_.chunk > 0) n = std::min(n, plan_.chunk);
  if (!options_.chunked_prefill && n > budget) return false;
  n = std::min(n, budget);
  Allocation a;
  a.new_tokens = n;
  a.hit = &hit;
  a.lookahead = options_.lookahead;
  a.whole_sequence = options_.whole_sequence;
  a.keep_watermark = !running_.empty() && kv_.watermark_blocks() > 0;
  a.comes_back = comes_back;
  r.computed = r.swapped_tokens;
  if (kv_.allocate(r, a) != Allocated::kYes) {
    ++counters_.failed_allocations;
    r.computed = 0;
    return false;
  }
  if (options_.kv.switches.stats == StatsPoint::kAdmission) count_lookup(r, hit.tokens);
  tell(CacheEventKind::kAdmit, r, CacheReason::kNone, n);
  if (comes_back) {
    swap_in(r);
  } else {
    tell(hit.any() ? CacheEventKind::kHit : CacheEventKind::kMiss, r, CacheReason::kNone,
         hit.tokens);
  }
  waiting_.pop();
  running_.push_back(slot);
  if (r.status == RequestStatus::kPreempted) {
    const std::int64_t again = std::max<std::int64_t>(r.computed_before - hit.tokens, 0);
    r.recomputed += again;
    counters_.recomputed_tokens += again;
  }
  r.status = RequestStatus::kRunning;
  r.computed = found;
  r.hit_tokens = hit.tokens;
  plan_tokens(r, n, true);
  budget -= n;
  return true;
}

void BlockScheduler::plan_tokens(const SchedRequest& request, std::int64_t tokens, bool admitted) {
  plan_.scheduled.push_back({request.slot, request.id, tokens, admitted});
}

std::int64_t BlockScheduler::unplan(std::int32_t slot) {
  const auto it = std::find_if(plan_.scheduled.begin(), plan_.scheduled.end(),
                               [&](const ScheduledTokens& s) { return s.slot == slot; });
  if (it == plan_.scheduled.end()) return 0;
  const std::int64_t tokens = it->tokens;
  plan_.scheduled.erase(it);
  return tokens;
}

void BlockScheduler::results(const StepPlan& plan, std::span<const std::int32_t> sampled) {
  for (std::size_t i = 0; i < plan.scheduled.size(); ++i) {
    const std::int32_t token = i < sampled.size() ? sampled[i] : kNoToken;
    take_result(plan.scheduled[i], std::span(&token, token == kNoToken ? 0u : 1u));
  }
  processed(plan.step);
}

void BlockScheduler::results(const StepPlan& plan,
                             const std::vector<std::vector<std::int32_t>>& sampled) {
  for (std::size_t i = 0; i < plan.scheduled.size(); ++i) {
    take_result(plan.scheduled[i], i < sampled.size() ? std::span<const std::int32_t>(sampled[i])
                                                      : std::span<const std::int32_t>());
  }
  processed(plan.step);
}

void BlockScheduler::take_result(const ScheduledTokens& scheduled,
                                 std::span<const std::int32_t> tokens) {
  SchedRequest& r = at(scheduled.slot);
  // Finished since, and perhaps another request is in its place.
  if (r.id != scheduled.id || finished(r.status)) return;
  r.in_flight = std::max<std::int64_t>(r.in_flight - scheduled.tokens, 0);
  if (r.status == RequestStatus::kRunning && r.drafts > 0 && !tokens.empty()) {
    // One token comes without a draft; of the drafts the others were accepted.
    const std::int64_t accepted = static_cast<std::int64_t>(tokens.size()) - 1;
    r.computed -= std::max<std::int64_t>(r.drafts - accepted, 0);
    r.drafts = 0;
  }
  for (const std::int32_t token : tokens) {
    r.tokens.push_back(token);
    if (r.placeholders > 0) --r.placeholders;
    if (!check_stop(r)) continue;
    finish(r);
    return;
  }
  if (!tokens.empty()) kv_.extend_hashes(r);
}

bool BlockScheduler::check_stop(SchedRequest& r) const {
  const std::int32_t token = r.tokens.back();
  if (r.outputs() < r.stop.min_tokens) return false;
  if (!r.stop.ignore_end && r.stop.end_token >= 0 && token == r.stop.end_token) {
    r.status = RequestStatus::kStopped;
    return true;
  }
  const std::vector<std::int32_t>& stops = r.stop.stop_tokens;
  if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
    r.status = RequestStatus::kStopped;
    r.stop_reason = token;
    return true;
  }
  if (r.num_tokens() >= options_.kv.max_model_len || r.outputs() >= r.stop.max_tokens) {
    r.status = RequestStatus::kLengthCapped;
    return true;
  }
  return false;
}

void BlockScheduler::finish(SchedRequest& r) {
  const bool aborted = r.status == RequestStatus::kAborted;
  tell(aborted ? CacheEventKind::kAbort : CacheEventKind::kFinish, r, CacheReason::kNone,
       r.num_tokens());
  give_back(r, aborted ? CacheReason::kAbort : CacheReason::kFinish);
  forget_swapped(r);
  slot_of_.erase(r.id);
  finished_.push_back(r.id);
  waiting_.remove(r.slot);
  closing_.push_back(r.slot);
}

void BlockScheduler::close_finished() {
  if (closing_.empty()) return;
  std::erase_if(running_, [&](std::int32_t slot) { return finished(at(slot).status); });
  for (const std::int32_t slot : closing_) {
    if (!options_.keep_finished) kv_.remove_slot(slot);
  }
  closing_.clear();
}

// After all results of a step.
void BlockScheduler::processed(std::int64_t step) {
  processed_ = std::max(processed_, step);
  close_finished();
  while (!deferred_.empty() && deferred_.front().fence <= processed_) {
    kv_.release(deferred_.front().blocks, CacheReason::kFinish);
    deferred_.pop_front();
  }
}

// Blocks that others may still write in a step in flight are held back until it is over.
void BlockScheduler::give_back(SchedRequest& r, CacheReason reason) {
  const bool defer = options_.kv.switches.defer_frees && options_.steps_in_flight > 1 &&
                     options_.outside_writer && r.last_step > processed_;
  if (!defer) {
    kv_.free(r, reason);
    return;
  }
  deferred_.push_back({step_ - 1, kv_.take_tables(r)});
}

void BlockScheduler::set_drafts(std::int64_t id, std::int64_t drafts) {
  SchedRequest* r = find(id);
  // Until its prompt is computed a request has nothing to draft from.
  if (r == nullptr || r->status != RequestStatus::kRunning || r->computed + 1 < r->num_tokens()) {
    return;
  }
  r->drafts = drafts;
}

bool BlockScheduler::abort(std::int64_t id) {
  SchedRequest* r = find(id);
  if (r == nullptr) return false;
  r->status = RequestStatus::kAborted;
  ++counters_.aborted;
  finish(*r);
  close_finished();
  return true;
}

bool BlockScheduler::reset_prefix_cache(bool preempt_running) {
  while (preempt_running && !running_.empty()) {
    const std::int32_t slot = running_.back();
    running_.pop_back();
    preempt(slot, false);
  }
  return kv_.reset_prefix_cache();
}

void BlockScheduler::count_lookup(const SchedRequest& r, std::int64_t hit) {
  if (!options_.kv.caching || r.skip_lookup) return;
  const bool again = r.preemptions > 0;
  (again ? stats_.preempted_requests : stats_.requests) += 1;
  (again ? stats_.preempted_queries : stats_.queries) += r.num_tokens();
  (again ? stats_.preempted_hits : stats_.hits) += hit;
}

void BlockScheduler::tell(CacheEventKind kind, const SchedRequest& r, CacheReason reason,
                          std::int64_t value) {
  BlockPool& pool = kv_.pool();
  if (pool.observer() == nullptr) return;
  pool.context.request = r.id;
  pool.context.group = -1;
  pool.tell(kind, -1, reason, value);
}

}  // namespace attnscope
