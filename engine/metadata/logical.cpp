#include "engine/metadata/logical.h"

#include <algorithm>

#include "engine/model/numbers.h"

namespace attnscope {
namespace {

// Entry a token completes, -1 when it completes none.
std::int64_t emitted(std::int64_t base, std::int64_t position, int tokens_per_row) {
  const bool completes = (position + 1) % tokens_per_row == 0;
  return completes ? base + position / tokens_per_row : -1;
}

}  // namespace

AddressSpace::AddressSpace(const std::vector<Request>& requests) : base_{0} {
  for (const Request& request : requests) {
    // Multiples of the most tokens that a row stands for, so that bases of all caches are whole.
    base_.push_back(base_.back() + (request.max_len() + 127) / 128 * 128);
  }
}

std::int64_t AddressSpace::base(std::int32_t request, int ratio) const {
  return base_[to_size(request)] / ratio;
}

std::int64_t AddressSpace::rows(int ratio) const { return base_.back() / ratio; }

std::int32_t AddressSpace::request_of(std::int64_t row, int ratio) const {
  const auto next = std::upper_bound(base_.begin(), base_.end(), row * ratio);
  return static_cast<std::int32_t>(next - base_.begin()) - 1;
}

const LogicalMetadata::Rows& LogicalMetadata::of(int tokens_per_row) const {
  return *std::ranges::find(caches, tokens_per_row, &Rows::tokens_per_row);
}

LogicalMetadata logical_metadata(const StepMetadata& step, const AddressSpace& space,
                                 const CacheLayout& layout) {
  LogicalMetadata out;
  out.caches.emplace_back();
  for (const CacheSpec& spec : layout.specs) {
    if (!std::ranges::count(out.caches, spec.tokens_per_row,
                            &LogicalMetadata::Rows::tokens_per_row))
      out.caches.push_back({.tokens_per_row = spec.tokens_per_row, .rows = {}, .table = {}});
  }
  for (const std::int32_t row : step.token_to_req) out.requests.push_back(step.live[to_size(row)]);
  for (LogicalMetadata::Rows& cache : out.caches) {
    const int ratio = cache.tokens_per_row;
    for (const std::int32_t id : step.live) {
      cache.table.push_back(static_cast<std::int32_t>(space.base(id, ratio)));
    }
    for (std::size_t t = 0; t < step.positions.size(); ++t) {
      const std::int64_t first = cache.table[to_size(step.token_to_req[t])];
      cache.rows.push_back(emitted(first, step.positions[t], ratio));
    }
  }
  return out;
}

}  // namespace attnscope
