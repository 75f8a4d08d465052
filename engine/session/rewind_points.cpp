#include "engine/session/rewind_points.h"

#include <algorithm>

namespace attnscope {
namespace {

std::int64_t block_bytes(const KeptBlock& block) {
  return static_cast<std::int64_t>(sizeof(KeptBlock) + block.content.size() +
                                   block.marks.rows.size() * sizeof(block.marks.rows[0]) +
                                   block.marks.steps.size() * sizeof(block.marks.steps[0]));
}

// Without the blocks.
std::int64_t own_bytes(const RewindPoint& c) {
  std::size_t bytes = sizeof(c) + c.ids.size() * sizeof(c.ids[0]) +
                      c.blocks.size() * (sizeof(c.blocks[0]) + 48);  // and its place among holders
  for (const auto& groups : c.tables) {
    for (const auto& table : groups) bytes += sizeof(std::vector<std::int32_t>) + 4 * table.size();
  }
  return static_cast<std::int64_t>(bytes) + serving_bytes(c.serving);
}

}  // namespace

std::shared_ptr<const KeptBlock> RewindPoint::find(std::int32_t id) const {
  const auto it = std::ranges::lower_bound(ids, id);
  if (it == ids.end() || *it != id) return nullptr;
  return blocks[static_cast<std::size_t>(it - ids.begin())];
}

// Per request its tokens here, with the scheduler and with the model that judges it, a hash for
// every few of them and its tables; per block its place in the free list, in the prefix map and in
// the list of contents, and the first two in that model once more.
std::int64_t serving_bytes(const Serving& serving) {
  std::int64_t bytes =
      static_cast<std::int64_t>(sizeof(serving)) + 172 * std::int64_t{serving.end_block()};
  for (const Request& request : serving.requests()) {
    bytes += 1024 + static_cast<std::int64_t>(request.tokens.capacity() * 24);
  }
  return bytes + static_cast<std::int64_t>(serving.events().capacity() * sizeof(CacheEvent));
}

void RewindPoints::add(std::unique_ptr<RewindPoint> c) {
  all_.reserve(all_.size() + 1);  // what may fail comes first
  holders_.reserve(holders_.size() + c->blocks.size());
  for (const auto& block : c->blocks) {
    if (++holders_[block.get()] == 1) bytes_ += block_bytes(*block);
  }
  bytes_ += own_bytes(*c);
  const auto place =
      std::ranges::upper_bound(all_, c->step, {}, [](const auto& known) { return known->step; });
  all_.insert(place, std::move(c));
  thin_out();
}

void RewindPoints::remove(std::size_t place) {
  const auto at = all_.begin() + static_cast<std::ptrdiff_t>(place);
  for (const auto& block : (*at)->blocks) {
    const auto holder = holders_.find(block.get());
    if (--holder->second > 0) continue;
    bytes_ -= block_bytes(*block);
    holders_.erase(holder);
  }
  bytes_ -= own_bytes(**at);
  all_.erase(at);
}

void RewindPoints::thin_out() {
  while (bytes_ > budget_ && all_.size() > 1) {
    // The newest one is where the next steps back go; it stays while any other can go.
    std::size_t least = all_.size() - 1;
    for (std::size_t i = 1; i + 1 < all_.size(); ++i) {
      const auto gap = [&](std::size_t k) { return all_[k + 1]->step - all_[k - 1]->step; };
      if (least + 1 == all_.size() || gap(i) < gap(least)) least = i;
    }
    remove(least);
  }
}

bool RewindPoints::has(std::int64_t step) const {
  const RewindPoint* c = at_or_before(step);
  return c != nullptr && c->step == step;
}

const RewindPoint* RewindPoints::at_or_before(std::int64_t step) const {
  const RewindPoint* found = nullptr;
  for (const auto& c : all_) {
    if (c->step <= step) found = c.get();
  }
  return found;
}

const RewindPoint* RewindPoints::after(std::int64_t step) const {
  for (const auto& c : all_) {
    if (c->step > step) return c.get();
  }
  return nullptr;
}

void RewindPoints::drop_after(std::int64_t step) {
  while (!all_.empty() && all_.back()->step > step) remove(all_.size() - 1);
}

void RewindPoints::set_budget(std::int64_t bytes) {
  budget_ = bytes;
  thin_out();
}

std::int64_t RewindPoints::longest_replay(std::int64_t steps) const {
  std::int64_t longest = 0;
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const std::int64_t next = i + 1 < all_.size() ? all_[i + 1]->step : steps + 1;
    longest = std::max(longest, next - all_[i]->step - 1);
  }
  return longest;
}

}  // namespace attnscope
