// Which requests advance, and the block tables after that.
#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "reference/ops.h"
#include "reference/tensors.h"

namespace attnscope::reference {

namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

void check_groups(const Integers& groups) {
  for (std::int64_t g = 0; g < groups.size(0); ++g) {
    if (groups.get(g, 0) <= 0 || groups.get(g, 1) < 0) {
      throw BadInput("group " + std::to_string(g) + " has block size " +
                     std::to_string(groups.get(g, 0)) + " and window " +
                     std::to_string(groups.get(g, 1)) +
                     "; allowed: a positive block size, a window of 0 (full) or more");
    }
  }
}

// Blocks that a request of max_len tokens may need at most, all groups together.
std::int64_t block_demand(const Integers& groups, std::int64_t max_len, std::int64_t token_budget) {
  std::int64_t sum = 0;
  for (std::int64_t g = 0; g < groups.size(0); ++g) {
    const std::int64_t block_size = groups.get(g, 0);
    const std::int64_t window = groups.get(g, 1);
    const std::int64_t whole = ceil_div(max_len, block_size);
    const std::int64_t in_window = std::min(window - 1 + token_budget, max_len);
    sum += window == 0 ? whole : std::min(whole, ceil_div(in_window, block_size) + 1);
  }
  return sum;
}

}  // namespace

void schedule(const as_schedule_params& p, const Precision&) {
  const Integers groups(p.groups, "groups", {kAny, 2});
  check_groups(groups);
  const Integers num_tokens(p.num_tokens, "num_tokens", {kAny});
  const std::int64_t requests = num_tokens.size(0);
  const Integers num_computed(p.num_computed, "num_computed", {requests});
  const Integers max_len(p.max_len, "max_len", {requests});
  const Integers running(p.running, "running", {requests});
  const Integers demand(p.demand, "demand", {requests});
  const Integers scheduled(p.scheduled, "scheduled", {requests});

  std::int64_t reserved = 0;
  std::int64_t num_running = 0;
  for (std::int64_t r = 0; r < requests; ++r) {
    demand.set(block_demand(groups, max_len.get(r), p.token_budget), r);
    scheduled.set(0, r);
    if (running.get(r) != 0) {
      reserved += demand.get(r);
      ++num_running;
    }
  }
  std::int64_t budget = p.token_budget;
  const auto advance = [&](std::int64_t r) {
    const std::int64_t n = std::min(num_tokens.get(r) - num_computed.get(r), budget);
    scheduled.set(n, r);
    budget -= n;
  };
  for (std::int64_t r = 0; r < requests; ++r) {
    if (running.get(r) != 0) advance(r);
  }
  for (std::int64_t r = 0; r < requests; ++r) {
    if (running.get(r) != 0) continue;
    if (budget <= 0 || num_running >= p.max_requests) break;
    if (reserved + demand.get(r) > p.usable_blocks) break;
    reserved += demand.get(r);
    ++num_running;
    advance(r);
  }
}

void block_tables(const as_block_tables_params& p, const Precision&) {
  const Integers groups(p.groups, "groups", {kAny, 2});
  check_groups(groups);
  const std::int64_t num_groups = groups.size(0);
  const Integers num_computed(p.num_computed, "num_computed", {kAny});
  const std::int64_t requests = num_computed.size(0);
  const Integers scheduled(p.scheduled, "scheduled", {requests});
  const Integers free_before(p.free_before, "free_before", {kAny});
  const Integers before(p.tables_before, "tables_before", {num_groups, requests, kAny});
  const std::int64_t columns = before.size(2);
  const Integers counts_before(p.counts_before, "counts_before", {num_groups, requests});
  const Integers tables(p.tables, "tables", {num_groups, requests, columns});
  const Integers counts(p.counts, "counts", {num_groups, requests});
  const Integers free_after(p.free_after, "free_after", {kAny});

  std::deque<std::int64_t> free;
  for (std::int64_t i = 0; i < free_before.size(0); ++i) free.push_back(free_before.get(i));
  for (std::int64_t g = 0; g < num_groups; ++g) {
    for (std::int64_t r = 0; r < requests; ++r) {
      counts.set(counts_before.get(g, r), g, r);
      for (std::int64_t c = 0; c < columns; ++c) tables.set(before.get(g, r, c), g, r, c);
    }
  }

  for (std::int64_t r = 0; r < requests; ++r) {
    if (scheduled.get(r) <= 0) continue;
    const std::int64_t computed = num_computed.get(r);
    for (std::int64_t g = 0; g < num_groups; ++g) {
      const std::int64_t window = groups.get(g, 1);
      if (window == 0) continue;
      const std::int64_t first_needed = std::max<std::int64_t>(0, computed - window + 1);
      const std::int64_t dropped = std::min(first_needed / groups.get(g, 0), counts.get(g, r));
      for (std::int64_t c = dropped - 1; c >= 0 && tables.get(g, r, c) != 0; --c) {
        free.push_back(tables.get(g, r, c));
        tables.set(0, g, r, c);
      }
    }
    for (std::int64_t g = 0; g < num_groups; ++g) {
      const std::int64_t needed = ceil_div(computed + scheduled.get(r), groups.get(g, 0));
      if (needed > columns) {
        throw BadInput("request " + std::to_string(r) + " needs " + std::to_string(needed) +
                       " table entries in group " + std::to_string(g) + " but tables has " +
                       std::to_string(columns) + " columns; make the tables wider");
      }
      for (std::int64_t c = counts.get(g, r); c < needed; ++c) {
        if (free.empty()) {
          throw BadInput("no free block is left for request " + std::to_string(r) + ", group " +
                         std::to_string(g) + ", entry " + std::to_string(c) +
                         "; a larger pool or fewer requests are needed");
        }
        tables.set(free.front(), g, r, c);
        free.pop_front();
        counts.set(c + 1, g, r);
      }
    }
  }

  if (free_after.size(0) != static_cast<std::int64_t>(free.size())) {
    throw BadInput("free_after has " + std::to_string(free_after.size(0)) + " entries but " +
                   std::to_string(free.size()) + " blocks are left");
  }
  for (std::size_t i = 0; i < free.size(); ++i) {
    free_after.set(free[i], static_cast<std::int64_t>(i));
  }
}

}  // namespace attnscope::reference
