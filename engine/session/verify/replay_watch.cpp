#include "engine/session/verify/replay_watch.h"

#include <fmt/format.h>

#include <iterator>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/cache/cache_layout.h"
#include "engine/io/content_hash.h"
#include "engine/model/numbers.h"
#include "engine/session/verify/row_checks.h"
#include "kernels/cpu/parallel.h"

namespace attnscope {
namespace {

// What two states differ in: "request 0, the swa cache of layer 2"; empty = nothing.
std::string state_difference(const ReplayWatch::State& a, const ReplayWatch::State& b,
                             const CacheLayout& layout, const std::vector<int>& layers) {
  std::string text;
  int more = 0;
  const auto name = [&](std::string what) {
    if (text.empty()) {
      text = std::move(what);
    } else {
      ++more;
    }
  };
  for (std::size_t i = 0; i < a.requests.size(); ++i) {
    if (a.requests[i] != b.requests[i]) name(fmt::format("the tokens of request {}", i));
  }
  for (std::size_t i = 0; i < a.tables.size(); ++i) {
    if (a.tables[i] != b.tables[i]) name(fmt::format("the block tables of request {}", i));
  }
  for (std::size_t i = 0; i < a.ropes.size(); ++i) {
    if (a.ropes[i] != b.ropes[i]) name(fmt::format("the rotary table of layer {}", layers[i]));
  }
  for (std::size_t i = 0; i < a.caches.size(); ++i) {
    if (a.caches[i] == b.caches[i]) continue;
    const CacheSpec& spec = layout.specs[i];
    name(fmt::format("the {} cache of layer {}", spec.name, layers[to_size(spec.layer)]));
  }
  if (a.swapped != b.swapped) name("the blocks in host memory");
  return more > 0 ? fmt::format("{} and {} others", text, more) : text;
}

// Of a long table some runs of numbers, evenly: a table that was made anew differs in most, and
// that none changes while it is read is looked at elsewhere (weight_watch.h).
std::uint64_t rope_hash(const std::vector<float>& table) {
  constexpr std::size_t kMostRows = 2048, kRun = 64;
  const std::size_t rows = table.size() / kRun, stride = rows / kMostRows + 1;
  std::uint64_t sum = content_hash(&rows, sizeof(rows));
  for (std::size_t row = 0; row < rows; row += stride) {
    sum = content_hash(&table[row * kRun], kRun * sizeof(float), sum);
  }
  return sum;
}

TapResult replay_result(std::string note) {
  return wrong_result(AS_OP_SCHEDULE, std::string("digest") + kReplayTap, 1, 1, std::move(note));
}

}  // namespace

ReplayWatch::State ReplayWatch::state_of(const Serving& serving, const WorkerTables& tables,
                                         std::span<const std::vector<float>> ropes,
                                         const CacheLayout& layout, const Slab& slab,
                                         const SwapSpace& swapped, const as_threads* threads) {
  State state;
  for (const Request& request : serving.requests()) {
    const std::uint64_t tokens =
        content_hash(request.tokens.data(), request.tokens.size() * sizeof(request.tokens[0]));
    state.requests.push_back(content_hash(&request.computed, sizeof(request.computed), tokens));
  }
  for (const auto& of_request : tables) {
    std::uint64_t& sum = state.tables.emplace_back(0);
    for (const std::vector<std::int32_t>& table : of_request) {
      const std::size_t entries = table.size();
      sum = content_hash(&entries, sizeof(entries), sum);
      sum = content_hash(table.data(), entries * sizeof(table[0]), sum);
    }
  }
  for (const std::vector<float>& table : ropes) state.ropes.push_back(rope_hash(table));
  state.caches.assign(layout.specs.size(), 0);
  const std::vector<BlockOwner> owners = serving.owners();
  struct Content {
    std::int32_t id;
    const std::uint8_t* bytes;
  };
  std::vector<std::vector<Content>> of_group(layout.groups.size());
  for (const std::int32_t id : serving.blocks_with_content()) {
    of_group[to_size(owners[to_size(id)].group)].push_back({id, slab.block(id)});
  }
  std::vector<std::pair<int, std::size_t>> caches;  // and their groups
  for (std::size_t g = 0; g < layout.groups.size(); ++g) {
    for (const int s : layout.groups[g].specs) caches.emplace_back(s, g);
  }
  const auto hash_cache = [&](int s, std::size_t group) {
    const CacheSpec& spec = layout.specs[to_size(s)];
    std::uint64_t& sum = state.caches[to_size(s)];
    for (const Content& block : of_group[group]) {
      sum = content_hash(&block.id, sizeof(block.id), sum);
      sum = content_hash(block.bytes + spec.offset, to_size(spec.page_bytes), sum);
    }
  };
  cpu::parallel_for(threads, to_count(caches.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (; begin < end; ++begin) std::apply(hash_cache, caches[to_size(begin)]);
  });
  for (const auto& [host, block] : swapped.blocks()) {
    state.swapped = content_hash(&host, sizeof(host), state.swapped);
    const auto bytes = to_size(layout.groups[to_size(block.group)].bytes);
    state.swapped = content_hash(block.kept->content.data(), bytes, state.swapped);
  }
  return state;
}

std::optional<TapResult> ReplayWatch::came_to(std::int64_t step, State now,
                                              const CacheLayout& layout,
                                              const std::vector<int>& layers) {
  if (step > last_) return {};
  const auto before = states_.find(step);
  if (before != states_.end()) {
    const std::string what = state_difference(before->second, now, layout, layers);
    if (what.empty()) return {};
    // What follows from it is no second fault.
    states_.erase(std::next(before), states_.end());
    before->second = std::move(now);
    return replay_result(fmt::format(
        "run again, step {} leaves something else than the first time: {}", step - 1, what));
  }
  states_[step] = std::move(now);
  return {};
}

std::optional<TapResult> ReplayWatch::went_to(std::int64_t step, State now,
                                              const CacheLayout& layout,
                                              const std::vector<int>& layers) {
  if (step > last_) return {};
  const auto [before, fresh] = states_.try_emplace(step, now);
  if (fresh) return {};
  const std::string what = state_difference(before->second, now, layout, layers);
  if (what.empty()) return {};
  states_.erase(std::next(before), states_.end());
  before->second = std::move(now);
  return replay_result(
      fmt::format("back at the start of step {} the session does not hold what it held "
                  "there: {}",
                  step, what));
}

void ReplayWatch::forget_after(std::int64_t step) {
  states_.erase(states_.upper_bound(step), states_.end());
  if (last_ >= step) last_ = std::numeric_limits<std::int64_t>::max();
}

std::string changed_row(const Serving& serving, const CacheLayout& layout, const Slab& slab,
                        const Shadow& shadow, const AddressSpace& space,
                        const std::vector<int>& layers) {
  const std::vector<BlockOwner> owners = serving.owners();
  for (const std::int32_t id : serving.blocks_with_content()) {
    for (const int s : layout.groups[to_size(owners[to_size(id)].group)].specs) {
      const CacheSpec& spec = layout.specs[to_size(s)];
      const as_cache paged = slab.cache(spec);
      for (std::int64_t r = 0; r < spec.rows_per_block; ++r) {
        const std::int64_t slot = std::int64_t{id} * spec.rows_per_block + r;
        const std::int64_t row = shadow.row_of(spec, slot);
        if (row < 0 || !shadow.holds(spec, slot, row) || shadow.matches(spec, paged, slot, row)) {
          continue;
        }
        return fmt::format("{} of layer {}, {}", slot_of_cache(spec, slot),
                           layers[to_size(spec.layer)], content_of(spec, space, row));
      }
    }
  }
  return {};
}

}  // namespace attnscope
