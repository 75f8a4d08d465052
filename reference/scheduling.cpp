// Which requests advance, and the block tables after that.
#include <algorithm>
#include <string>
#include <vector>

#include "reference/ops.h"
#include "reference/tensors.h"

namespace attnscope::reference {

namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

void check_groups(const Integers& groups) {
  for (std::int64_t g = 0; g < groups.size(0); ++g) {
    if (groups.get(g, 0) <= 0) {
      throw BadInput("group " + std::to_string(g) + " has block size " +
                     std::to_string(groups.get(g, 0)) + "; allowed: positive ones");
    }
  }
}

std::int64_t common_multiple(const Integers& groups) {
  std::int64_t multiple = 1;
  for (std::int64_t g = 0; g < groups.size(0); ++g) {
    std::int64_t next = multiple;
    while (next % groups.get(g, 0) != 0) next += multiple;
    multiple = next;
  }
  return multiple;
}

}  // namespace

void schedule(const as_schedule_params& p, const Precision&) {
  const Integers groups(p.groups, "groups", {kAny, 2});
  check_groups(groups);
  const Integers num_tokens(p.num_tokens, "num_tokens", {kAny});
  const std::int64_t requests = num_tokens.size(0);
  const Integers num_before(p.num_before, "num_before", {requests});
  const Integers running(p.running, "running", {requests});
  const Integers joins(p.joins, "joins", {requests});
  const Integers lost_to(p.lost_to, "lost_to", {requests});
  const Integers matching(p.matching, "matching", {requests});
  const Integers num_computed(p.num_computed, "num_computed", {requests});
  const Integers num_scheduled_tokens(p.num_scheduled_tokens, "num_scheduled_tokens", {requests});

  for (std::int64_t r = 0; r < requests; ++r) {
    num_scheduled_tokens.set(0, r);
    num_computed.set(lost_to.get(r) >= 0 ? 0 : num_before.get(r), r);
  }
  std::vector<bool> gone(static_cast<std::size_t>(requests), false);
  std::int64_t budget = p.token_budget;
  const auto at_once = [&](std::int64_t tokens) {
    const std::int64_t n = std::min(tokens, budget);
    return p.longest_chunk > 0 ? std::min<std::int64_t>(n, p.longest_chunk) : n;
  };
  for (std::int64_t r = 0; r < requests && budget > 0; ++r) {
    if (running.get(r) == 0 || gone[static_cast<std::size_t>(r)]) continue;
    const std::int64_t n = at_once(num_tokens.get(r) - num_before.get(r));
    for (std::int64_t victim = 0; victim < requests; ++victim) {
      if (lost_to.get(victim) != r) continue;
      gone[static_cast<std::size_t>(victim)] = true;
      budget += num_scheduled_tokens.get(victim);
      num_scheduled_tokens.set(0, victim);
    }
    if (lost_to.get(r) == r) break;
    num_scheduled_tokens.set(n, r);
    budget -= n;
  }
  const std::int64_t step = p.alignment > 0 ? p.alignment : common_multiple(groups);
  for (std::int64_t r = 0; r < requests; ++r) {
    if (joins.get(r) == 0) continue;
    // The last token is computed in any case: its logits are what the request is for.
    const std::int64_t most = std::min(matching.get(r), num_tokens.get(r) - 1);
    const bool own_rows = joins.get(r) == 2;  // they end where they end
    num_computed.set(own_rows ? matching.get(r) : most / step * step, r);
    const std::int64_t n = at_once(num_tokens.get(r) - num_computed.get(r));
    num_scheduled_tokens.set(n, r);
    budget -= n;
  }
}

void block_tables(const as_block_tables_params& p, const Precision&) {
  const Integers groups(p.groups, "groups", {kAny, 2});
  check_groups(groups);
  const std::int64_t num_groups = groups.size(0);
  const Integers num_computed(p.num_computed, "num_computed", {kAny});
  const std::int64_t requests = num_computed.size(0);
  const Integers num_scheduled_tokens(p.num_scheduled_tokens, "num_scheduled_tokens", {requests});
  const Integers joins(p.joins, "joins", {requests});
  const Integers blocks(p.blocks, "blocks", {num_groups, requests, kAny});
  const std::int64_t columns = blocks.size(2);
  const Integers before(p.tables_before, "tables_before", {num_groups, requests, columns});
  const Integers counts_before(p.counts_before, "counts_before", {num_groups, requests});
  const Integers tables(p.tables, "tables", {num_groups, requests, columns});
  const Integers counts(p.counts, "counts", {num_groups, requests});

  for (std::int64_t g = 0; g < num_groups; ++g) {
    const std::int64_t block_size = groups.get(g, 0);
    const std::int64_t only_first = as_first_with_rows(static_cast<std::int32_t>(groups.get(g, 1)));
    const std::int64_t window = only_first >= 0 ? 0 : groups.get(g, 1);
    for (std::int64_t r = 0; r < requests; ++r) {
      const std::int64_t old = joins.get(r) != 0 ? 0 : counts_before.get(g, r);
      const bool works = num_scheduled_tokens.get(r) > 0;
      const std::int64_t first = num_computed.get(r);
      std::int64_t rows = first + num_scheduled_tokens.get(r);
      if (only_first >= 0 && rows > only_first) rows = only_first;
      const std::int64_t filled = works ? ceil_div(rows, block_size) : 0;
      const std::int64_t held = std::max(old, filled);
      if (held > columns) {
        throw BadInput("request " + std::to_string(r) + " needs " + std::to_string(held) +
                       " table entries in group " + std::to_string(g) + " but tables has " +
                       std::to_string(columns) + " columns; make the tables wider");
      }
      // The first row that a token of the step sees: of its window, or of its chunk.
      std::int64_t row = window > 0 ? std::max<std::int64_t>(0, first - window + 1) : 0;
      if (window < 0) row = first - first % window;
      const std::int64_t seen = row / block_size;
      counts.set(held, g, r);
      for (std::int64_t c = 0; c < columns; ++c) {
        std::int64_t id = c >= held ? 0 : c < old ? before.get(g, r, c) : blocks.get(g, r, c);
        const bool needed = c >= seen && c < filled;
        if (needed && (blocks.get(g, r, c) == 0 || blocks.get(g, r, c) != id)) id = -1;
        tables.set(id, g, r, c);
      }
    }
  }
}

}  // namespace attnscope::reference
