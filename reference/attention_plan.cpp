// attention_plan: tile by tile, who works on it; a split is a run of tiles of one row and one part.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "reference/ops.h"
#include "reference/tensors.h"

namespace attnscope::reference {
namespace {

// Of each row the number of the run that each of its tiles is in, and the part of each run.
struct Cut {
  std::vector<std::vector<std::int64_t>> runs;
  std::vector<std::int64_t> parts;
};

std::int64_t rounded_up(std::int64_t value, std::int64_t step) {
  while (value % step != 0) ++value;
  return value;
}

// Tiles of each row of a type of layers, 0 = padding.
std::vector<std::int64_t> tiles_of_rows(const as_attention_plan_params& p, int type) {
  const Integers window(p.window_lens, "window_lens", {kAny});
  const std::int64_t tokens = window.size(0);
  std::vector<std::int64_t> tiles(static_cast<std::size_t>(tokens), 0);
  const as_tensor& other = type == 1 ? p.c4_lens : p.c128_lens;
  if (type > 0 && !present(other)) return tiles;
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::int64_t entries = 0;
    if (type > 0) entries = Integers(other, "lengths of entries", {tokens}).get(t);
    if (type == 1) entries = std::min<std::int64_t>(entries, p.top_k);
    if (window.get(t) <= 0 && entries <= 0) continue;
    // The window's list is padded to whole tiles, the other one follows it.
    const std::int64_t places = rounded_up(std::max<std::int64_t>(window.get(t), 1), AS_PLAN_TILE) +
                                std::max<std::int64_t>(entries, 0);
    tiles[static_cast<std::size_t>(t)] = rounded_up(places, AS_PLAN_TILE) / AS_PLAN_TILE;
  }
  return tiles;
}

// What a part still may do: a tile costs 1, ending or leaving a row costs 5 once. The rest of a row
// is taken whole where it can be paid for.
Cut cut_by_budget(const std::vector<std::int64_t>& tiles, std::int64_t parts) {
  std::int64_t cost = 0;
  for (const std::int64_t n : tiles) cost += n == 0 ? 0 : n + 5;
  const std::int64_t budget = rounded_up(cost, parts) / parts + 5;
  Cut cut;
  std::int64_t part = 0, spent = 0;
  for (const std::int64_t n : tiles) {
    std::vector<std::int64_t> runs;
    std::int64_t last = -1;  // part of the tile before
    while (std::ssize(runs) < n) {
      const std::int64_t rest = n - std::ssize(runs);
      const bool ends_here = spent + rest + 5 <= budget;
      if (!ends_here && spent + 5 >= budget) {
        ++part;
        spent = 0;
        continue;
      }
      if (part != last) cut.parts.push_back(last = part);
      runs.push_back(std::ssize(cut.parts) - 1);
      ++spent;
      if (rest == 1) spent += 5;
    }
    cut.runs.push_back(std::move(runs));
  }
  return cut;
}

Cut cut_by_cost(const std::vector<std::int64_t>& tiles, std::int64_t blocks_of_row,
                std::int64_t multiprocessors) {
  std::int64_t longest = 0, blocks = 0;
  for (const std::int64_t n : tiles) {
    longest = std::max(longest, n);
    if (n > 0) blocks += blocks_of_row;
  }
  // In twentieths of a microsecond, but that half a unit does not count.
  const auto cost = [&](std::int64_t splits) -> std::int64_t {
    if (splits == 1) return 32 * longest;
    if (blocks * splits > multiprocessors) return std::numeric_limits<std::int64_t>::max();
    const std::int64_t share = blocks * splits;
    return 32 * (rounded_up(longest, splits) / splits) + 50 + share - share % 2;
  };
  std::int64_t best = 1;
  for (std::int64_t s = std::min<std::int64_t>(64, longest); s > 1; --s) {
    if (cost(s) < cost(1) && (best == 1 || cost(s) <= cost(best))) best = s;
  }
  Cut cut;
  for (const std::int64_t n : tiles) {
    std::vector<std::int64_t> runs;
    std::int64_t last = -1;
    for (std::int64_t tile = 0; tile < n; ++tile) {
      // The split that ends behind the tile: the first whose end is.
      std::int64_t j = 0;
      while (n * (j + 1) / best <= tile) ++j;
      if (j != last) cut.parts.push_back(std::ssize(cut.parts));
      last = j;
      runs.push_back(std::ssize(cut.parts) - 1);
    }
    cut.runs.push_back(std::move(runs));
  }
  return cut;
}

}  // namespace

void attention_plan(const as_attention_plan_params& p, const Precision&) {
  if (p.rule != AS_PLAN_OWN && p.rule != AS_PLAN_FLASHMLA) {
    throw BadInput("rule is " + std::to_string(p.rule) + "; allowed: 1 (own), 2 (FlashMLA's)");
  }
  if (p.heads <= 0 || p.multiprocessors <= 0 || p.top_k < 0) {
    throw BadInput("heads is " + std::to_string(p.heads) + ", multiprocessors " +
                   std::to_string(p.multiprocessors) + ", top_k " + std::to_string(p.top_k) +
                   "; the first two must be positive, the last not negative");
  }
  const std::int64_t tokens = Integers(p.window_lens, "window_lens", {kAny}).size(0);
  const Integers rows(p.rows, "rows", {AS_PLAN_TYPES, tokens, 2});
  const Integers splits(p.splits, "splits",
                        {AS_PLAN_TYPES, tokens + p.multiprocessors, AS_PLAN_COLUMNS});
  const Integers counts(p.counts, "counts", {AS_PLAN_TYPES, 2});
  const std::int64_t blocks_of_row = rounded_up(p.heads, AS_PLAN_HEADS) / AS_PLAN_HEADS;
  for (int type = 0; type < AS_PLAN_TYPES; ++type) {
    for (std::int64_t n = 0; n < splits.size(1); ++n) {
      for (std::int64_t c = 0; c < AS_PLAN_COLUMNS; ++c) splits.set(-1, type, n, c);
    }
    const std::vector<std::int64_t> tiles = tiles_of_rows(p, type);
    const Cut cut =
        p.rule == AS_PLAN_OWN
            ? cut_by_cost(tiles, blocks_of_row, p.multiprocessors)
            : cut_by_budget(tiles, std::max<std::int64_t>(p.multiprocessors / blocks_of_row, 1));
    std::int64_t next = 0, combined = 0, place = 0;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto& runs = cut.runs[static_cast<std::size_t>(t)];
      const std::int64_t count = runs.empty() ? 0 : runs.back() - runs.front() + 1;
      rows.set(next, type, t, 0);
      rows.set(count, type, t, 1);
      combined += count > 1 ? 1 : 0;
      for (std::int64_t tile = 0; tile < std::ssize(runs); ++tile) {
        const std::int64_t run = runs[static_cast<std::size_t>(tile)];
        if (tile == 0 || run != runs[static_cast<std::size_t>(tile - 1)]) {
          splits.set(t, type, run, AS_PLAN_ROW);
          splits.set(tile, type, run, AS_PLAN_BEGIN);
          splits.set(cut.parts[static_cast<std::size_t>(run)], type, run, AS_PLAN_PART);
          splits.set(count > 1 ? place++ : -1, type, run, AS_PLAN_PLACE);
        }
        splits.set(tile + 1, type, run, AS_PLAN_END);
      }
      next += count;
    }
    counts.set(next, type, 0);
    counts.set(combined, type, 1);
  }
}

}  // namespace attnscope::reference
