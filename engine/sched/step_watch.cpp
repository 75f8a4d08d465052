#include "engine/sched/step_watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnscope {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

void StepWatch::fail(const char* invariant, std::string what) {
  findings_.push_back({invariant, std::move(what), met_});
}

void StepWatch::check_request(const ScheduledTokens& scheduled) {
  const SchedRequest& r = scheduler_.request(scheduled.slot);
  const KvManager& kv = scheduler_.kv();
  const BlockPool& pool = kv.pool();
  const std::int64_t first = r.computed - scheduled.tokens;
  const std::int64_t drop_point =
      std::max<std::int64_t>(first - (kv.options().switches.window_basis == WindowBasis::kProcessed
                                          ? r.in_flight - scheduled.tokens
                                          : 0),
                             0);
  for (std::size_t g = 0; g < kv.num_groups(); ++g) {
    const GroupSpec& spec = kv.options().groups[g];
    const GroupTable& table = kv.table(scheduled.slot, g);
    const std::int64_t block = spec.block_tokens;
    if (table.size() * block < spec.with_rows(r.computed)) {
      return fail("I6 length", fmt::format("request {} has {} entries in group {} for {} tokens",
                                           r.id, table.size(), g, r.computed));
    }
    if (table.cached > table.size()) {
      return fail("I9 commit", fmt::format("request {} in group {}: {} entries committed of {}",
                                           r.id, g, table.cached, table.size()));
    }
    if (spec.kind != GroupKind::kFull || table.first_real > 0) {
      const std::int64_t gone = table.first_real * block;
      const std::int64_t seen = first_seen(spec, drop_point);
      if (gone > seen || gone + block <= std::min(seen, table.size() * block)) {
        return fail("I7 nulls", fmt::format("request {} in group {}: {} entries are null where "
                                            "position {} is the first in sight",
                                            r.id, g, table.first_real, seen));
      }
    }
    // The blocks written in this step, from the newest; those before were checked when written.
    const std::int64_t oldest =
        std::max(first / block, table.size() - 1 - scheduled.tokens / block);
    for (std::int64_t i = table.size() - 1; i >= oldest && i >= 0; --i) {
      const std::int32_t b = table.blocks[static_cast<std::size_t>(i)];
      if (b <= 0 || b >= pool.end_block() || pool.refs(b) < 1 || pool.queue().contains(b)) {
        return fail("I16 slots",
                    fmt::format("request {} writes to block {}, which is not held", r.id, b));
      }
    }
  }
}

void StepWatch::check_figures(const StepPlan& plan) {
  const BlockPool& pool = scheduler_.kv().pool();
  if (plan.total_tokens > scheduler_.options().token_budget ||
      static_cast<std::int64_t>(scheduler_.running().size()) > scheduler_.options().max_requests) {
    fail("I18 scheduler", fmt::format("step {} plans {} tokens, {} requests run", plan.step,
                                      plan.total_tokens, scheduler_.running().size()));
  }
  if (pool.num_free() < 0 || pool.num_free() > pool.usable() || pool.free_with_key() < 0 ||
      pool.free_with_key() > pool.num_free()) {
    fail("I22 metrics", fmt::format("{} of {} blocks are free, {} of them with a key",
                                    pool.num_free(), pool.usable(), pool.free_with_key()));
  }
}

void StepWatch::walk() {
  ++full_walks_;
  const KvSnapshot state = take_snapshot(scheduler_.kv());
  std::vector<std::int32_t> pins;
  for (const BlockScheduler::Deferred& d : scheduler_.deferred()) {
    pins.insert(pins.end(), d.blocks.begin(), d.blocks.end());
  }
  const auto request = [this](std::int32_t slot) -> const KvRequest* {
    const SchedRequest& r = scheduler_.request(slot);
    return finished(r.status) ? nullptr : &r;
  };
  const KvFacts facts{
      scheduler_.kv(), state, pins, request, {}, scheduler_.options().lookahead, false};
  std::vector<Violation> found = check_state(facts);
  if (Finding more = check_scheduler(scheduler_)) found.push_back(std::move(*more));
  if (Finding more = check_host_blocks(scheduler_)) found.push_back(std::move(*more));
  for (const Violation& v : found) fail(v.invariant.c_str(), v.what);
}

void StepWatch::after_schedule(const StepPlan& plan) {
  const Clock::time_point start = Clock::now();
  met_ = "schedule";
  check_figures(plan);
  if (Finding more = check_swaps(scheduler_, plan)) fail(more->invariant.c_str(), more->what);
  for (const ScheduledTokens& scheduled : plan.scheduled) check_request(scheduled);
  if (++steps_ % full_every_ == 0) walk();
  cost_ += Clock::now() - start;
}

void StepWatch::after_results(const StepPlan& /*plan*/) {
  if (!scheduler_.done()) return;
  met_ = "results";
  // I17: with nobody left all blocks are free.
  const BlockPool& pool = scheduler_.kv().pool();
  if (scheduler_.deferred().empty() && pool.num_free() != pool.usable()) {
    fail("I17 quiescence", fmt::format("{} of {} blocks are free", pool.num_free(), pool.usable()));
  }
}

}  // namespace attnscope
