#include "engine/sched/sched_invariants.h"

#include <algorithm>
#include <map>
#include <set>

namespace attnscope {
namespace {

constexpr const char* kSchedule = "schedule";

}  // namespace

Finding check_slots(const BlockScheduler& s, const StepPlan& plan) {
  const char* name = "I16 slots";
  const KvManager& kv = s.kv();
  for (std::size_t g = 0; g < kv.num_groups(); ++g) {
    const GroupSpec& spec = kv.options().groups[g];
    const std::int64_t block = spec.block_tokens;
    std::map<std::int32_t, std::int64_t> writer;  // block -> request
    for (const ScheduledTokens& scheduled : plan.scheduled) {
      const SchedRequest& r = s.request(scheduled.slot);
      const GroupTable& table = kv.table(scheduled.slot, g);
      const std::int64_t first = r.computed - scheduled.tokens;  // position written first
      if (scheduled.admitted && first < r.hit_tokens) {
        return violation(name, "request {} writes position {} of its hit of {}", r.id, first,
                         r.hit_tokens);
      }
      for (std::int64_t i = first / block; i * block < spec.with_rows(r.computed); ++i) {
        if (i >= table.size()) {
          return violation(name, "request {} writes to entry {} of {} in group {}", r.id, i,
                           table.size(), g);
        }
        const std::int32_t b = table.blocks[static_cast<std::size_t>(i)];
        if (b <= 0 || kv.pool().refs(b) < 1) {
          return violation(name, "request {} writes to block {}, which nobody holds", r.id, b);
        }
        const auto [it, fresh] = writer.emplace(b, r.id);
        if (!fresh && it->second != r.id) {
          return violation(name, "requests {} and {} write to block {} of group {}", it->second,
                           r.id, b, g);
        }
      }
    }
  }
  return {};
}

Finding check_scheduler(const BlockScheduler& s) {
  const char* name = "I18 scheduler";
  std::set<std::int32_t> seen;
  const std::vector<std::int32_t> waiting = s.waiting();
  for (const std::int32_t slot : s.running()) {
    if (!seen.insert(slot).second) return violation(name, "slot {} runs twice", slot);
    const SchedRequest& r = s.request(slot);
    if (r.status != RequestStatus::kRunning) {
      return violation(name, "request {} runs and is {}", r.id, request_status_name(r.status));
    }
    if (r.computed > r.num_tokens() + r.placeholders + r.drafts) {
      return violation(name, "request {} of {} tokens has {} computed", r.id, r.num_tokens(),
                       r.computed);
    }
  }
  if (static_cast<std::int64_t>(s.running().size()) > s.options().max_requests) {
    return violation(name, "{} requests run, at most {} may", s.running().size(),
                     s.options().max_requests);
  }
  for (const std::int32_t slot : waiting) {
    if (!seen.insert(slot).second) return violation(name, "slot {} waits and runs, or twice", slot);
    const SchedRequest& r = s.request(slot);
    if (r.status != RequestStatus::kWaiting && r.status != RequestStatus::kPreempted) {
      return violation(name, "request {} waits and is {}", r.id, request_status_name(r.status));
    }
    bool tables = false;
    for (std::size_t g = 0; g < s.kv().num_groups(); ++g) {
      tables = tables || s.kv().table(slot, g).size() > 0;
    }
    if (tables || r.computed != 0) {
      return violation(name, "request {} waits and has {} computed tokens or a table", r.id,
                       r.computed);
    }
  }
  for (const std::int32_t slot : seen) {
    if (s.find(s.request(slot).id) == nullptr) {
      return violation(name, "request {} is in a list and not alive", s.request(slot).id);
    }
  }
  return {};
}

Finding check_plan(const BlockScheduler& s, const StepPlan& plan) {
  const char* name = "I18 scheduler";
  std::int64_t total = 0;
  std::set<std::int64_t> ids;
  bool admitted = false;
  for (const ScheduledTokens& scheduled : plan.scheduled) {
    if (scheduled.tokens < 1) {
      return violation(name, "request {} computes {} tokens", scheduled.id, scheduled.tokens);
    }
    if (!ids.insert(scheduled.id).second) {
      return violation(name, "request {} is planned twice", scheduled.id);
    }
    total += scheduled.tokens;
    admitted = admitted || scheduled.admitted;
  }
  for (const ScheduledTokens& scheduled : plan.scheduled) {
    if (plan.chunk > 0 && scheduled.tokens > plan.chunk) {
      return violation(name, "request {} computes {} tokens, chunks of this step have at most {}",
                       scheduled.id, scheduled.tokens, plan.chunk);
    }
  }
  const AdaptiveChunks& chunks = s.options().chunks;
  if (chunks.on() && (plan.chunk < chunks.least || plan.chunk > chunks.most)) {
    return violation(name, "chunks of {} tokens, which are from {} to {}", plan.chunk, chunks.least,
                     chunks.most);
  }
  if (total > s.options().token_budget) {
    return violation(name, "{} tokens are planned, the budget is {}", total,
                     s.options().token_budget);
  }
  if (plan.scheduled.size() > s.running().size()) {
    return violation(name, "{} requests are planned, {} run", plan.scheduled.size(),
                     s.running().size());
  }
  if (admitted && !plan.preempted.empty()) {
    return violation(name, "step {} preempts and admits", plan.step);
  }
  return {};
}

Finding check_host_blocks(const BlockScheduler& s) {
  const char* name = "I23 host blocks";
  const HostBlocks& host = s.host_blocks();
  std::map<std::int32_t, std::int64_t> holder;  // block of the host -> request
  for (const std::int32_t slot : s.running()) {
    const SchedRequest& r = s.request(slot);
    if (r.swapped_tokens == 0 && r.swapped.empty()) continue;
    return violation(name, "request {} runs and has {} tokens in host memory", r.id,
                     r.swapped_tokens);
  }
  for (const std::int32_t slot : s.waiting()) {
    const SchedRequest& r = s.request(slot);
    for (std::size_t g = 0; g < r.swapped.size(); ++g) {
      const GroupSpec& spec = s.options().kv.groups[g];
      const SwappedTable& table = r.swapped[g];
      const std::int64_t end = table.nulls + static_cast<std::int64_t>(table.blocks.size());
      if (table.nulls * spec.block_tokens > first_seen(spec, r.swapped_tokens) ||
          end * spec.block_tokens < spec.with_rows(r.swapped_tokens)) {
        return violation(
            name, "request {} in group {}: entries {} to {} are in host memory, of {} tokens", r.id,
            g, table.nulls, end, r.swapped_tokens);
      }
      for (const std::int32_t block : table.blocks) {
        const auto [it, fresh] = holder.emplace(block, r.id);
        if (!fresh || block < 0 || block >= host.size() || host.is_free(block)) {
          return violation(
              name, "request {} has host block {}, which is {}", r.id, block,
              fresh ? std::string("free or none") : "request " + std::to_string(it->second) + "'s");
        }
      }
    }
  }
  const std::int64_t held = static_cast<std::int64_t>(holder.size());
  if (held + host.num_free() != host.size()) {
    return violation(name, "{} of {} host blocks are held, {} are free", held, host.size(),
                     host.num_free());
  }
  return {};
}

Finding check_swaps(const BlockScheduler& s, const StepPlan& plan) {
  const char* name = "I23 host blocks";
  if (!plan.swapped_out.empty() && !plan.swapped_in.empty()) {
    return violation(name, "step {} swaps out and in", plan.step);
  }
  for (const SwapMove& move : plan.swapped_out) {
    if (std::ranges::count(plan.preempted, move.request) != 1) {
      return violation(name, "rows of request {} are swapped out, which is not preempted",
                       move.request);
    }
  }
  std::set<std::int32_t> targets;
  for (const SwapMove& move : plan.swapped_in) {
    const SchedRequest* r = s.find(move.request);
    const bool there = r != nullptr && r->status == RequestStatus::kRunning;
    if (!there) return violation(name, "request {} comes back and does not run", move.request);
    const GroupTable& table = s.kv().table(r->slot, static_cast<std::size_t>(move.group));
    if (move.index < table.first_real || move.index >= table.size() ||
        table.blocks[static_cast<std::size_t>(move.index)] != move.block ||
        !targets.insert(move.block).second) {
      return violation(name,
                       "rows of request {} come to block {}, which entry {} of group {} is not",
                       move.request, move.block, move.index, move.group);
    }
  }
  return {};
}

StepInFlight blocks_in_use(const BlockScheduler& s, const StepPlan& plan) {
  StepInFlight out{plan.step, {}};
  for (const ScheduledTokens& scheduled : plan.scheduled) {
    const SchedRequest& r = s.request(scheduled.slot);
    const std::int64_t first = r.computed - scheduled.tokens;
    for (std::size_t g = 0; g < s.kv().num_groups(); ++g) {
      const GroupSpec& spec = s.kv().options().groups[g];
      const GroupTable& table = s.kv().table(scheduled.slot, g);
      std::int64_t seen = 0;
      if (spec.kind == GroupKind::kSliding) {
        seen = std::max<std::int64_t>(first - (spec.window - 1), 0);
      }
      if (spec.kind == GroupKind::kChunked) seen = first - first % spec.window;
      for (std::int64_t i = seen / spec.block_tokens; i <= (r.computed - 1) / spec.block_tokens;
           ++i) {
        if (i < table.size()) out.blocks.push_back(table.blocks[static_cast<std::size_t>(i)]);
      }
    }
  }
  return out;
}

Finding check_in_flight(const BlockScheduler& s, const std::deque<StepInFlight>& steps) {
  for (const StepInFlight& step : steps) {
    for (const std::int32_t b : step.blocks) {
      if (s.kv().pool().refs(b) < 1) {
        return violation("I19 in flight", "block {} is in use by step {} and free", b, step.step);
      }
    }
  }
  return {};
}

HeadBefore head_before(const BlockScheduler& s) {
  HeadBefore head;
  const std::vector<std::int32_t> waiting = s.waiting();
  if (waiting.empty() || !s.running().empty() || !s.deferred().empty()) return head;
  const SchedRequest& r = s.request(waiting.front());
  const KvManager& kv = s.kv();
  const std::int64_t usable = kv.pool().usable();
  const std::int64_t chunk = std::min(r.num_tokens(), s.options().token_budget);
  const std::int64_t most = kv.options().max_model_len;
  std::int64_t whole = 0;
  std::int64_t first = 0;
  for (std::size_t g = 0; g < kv.num_groups(); ++g) {
    const GroupSpec& spec = kv.options().groups[g];
    const std::int64_t block = spec.block_tokens;
    std::int64_t need = (spec.with_rows(std::min(r.num_tokens(), most)) + block - 1) / block;
    if (kv.cap(g) >= 0) need = std::min(need, kv.cap(g));
    whole += need;
    // A hit may start anywhere: at most the chunk and the window before it, cut by blocks.
    const std::int64_t seen = spec.kind == GroupKind::kFull ? r.num_tokens() : spec.window;
    const std::int64_t tokens = std::min(seen + chunk + s.options().lookahead, most);
    first += (spec.with_rows(tokens) + block - 1) / block + 1;
  }
  head.id = r.id;
  head.must_be_admitted = std::max(whole, first) <= usable && s.options().chunked_prefill;
  return head;
}

Finding check_liveness(const HeadBefore& head, const StepPlan& plan) {
  if (!head.must_be_admitted) return {};
  for (const ScheduledTokens& s : plan.scheduled) {
    if (s.id == head.id) return {};
  }
  return violation("I20 liveness", "request {} fits into the empty pool and was not admitted",
                   head.id);
}

SchedAuditor::SchedAuditor(BlockScheduler& scheduler, bool events)
    : scheduler_(scheduler), events_(events) {
  kv_.request = [this](std::int32_t slot) -> const KvRequest* {
    const SchedRequest& r = scheduler_.request(slot);
    return finished(r.status) ? nullptr : &r;
  };
  kv_.pins = [this] {
    std::vector<std::int32_t> blocks;
    for (const BlockScheduler::Deferred& d : scheduler_.deferred()) {
      blocks.insert(blocks.end(), d.blocks.begin(), d.blocks.end());
    }
    return blocks;
  };
  kv_.lookahead = scheduler.options().lookahead;
  scheduler_.kv().set_audit(&kv_);
  if (events_) scheduler_.kv().keep_events(true);
}

void SchedAuditor::before_schedule() { head_ = head_before(scheduler_); }

void SchedAuditor::after_schedule(const StepPlan& plan) {
  kv_.report(check_plan(scheduler_, plan), kSchedule);
  kv_.report(check_slots(scheduler_, plan), kSchedule);
  kv_.report(check_swaps(scheduler_, plan), kSchedule);
  kv_.report(check_liveness(head_, plan), kSchedule);
  // One step at a time nothing else frees blocks while it runs; with several in flight they stay
  // only where frees wait for them.
  const SchedulerOptions& o = scheduler_.options();
  const bool guarded = o.kv.switches.window_basis == WindowBasis::kProcessed &&
                       o.kv.switches.defer_frees && o.outside_writer;
  if (o.steps_in_flight > 1 && guarded) in_flight_.push_back(blocks_in_use(scheduler_, plan));
  check_now(kSchedule);
}

void SchedAuditor::after_results(const StepPlan& plan) {
  while (!in_flight_.empty() && in_flight_.front().step <= plan.step) in_flight_.pop_front();
  check_now("results");
}

void SchedAuditor::after_change() { check_now("an arrival, an abort or a reset"); }

void SchedAuditor::check_now(const char* met) {
  kv_.report(check_scheduler(scheduler_), met);
  kv_.report(check_host_blocks(scheduler_), met);
  kv_.report(check_in_flight(scheduler_, in_flight_), met);
  if (!events_) return;
  for (const KvEvent& event : scheduler_.kv().take_events()) {
    if (!mirror_.apply(event)) {
      kv_.report(Violation{"I15 events", "content was removed that was never stored"}, met);
    }
  }
  kv_.report(check_events(scheduler_.kv(), mirror_), met);
}

}  // namespace attnscope
