#include "engine/metadata/logical.h"

#include <algorithm>

#include "engine/model/numbers.h"

namespace attnscope {
namespace {

// Entry a token completes, -1 when it completes none.
std::int64_t emitted(std::int64_t base, std::int64_t position, int ratio) {
  return (position + 1) % ratio == 0 ? base + position / ratio : -1;
}

}  // namespace

AddressSpace::AddressSpace(const std::vector<Request>& requests) : base_{0} {
  for (const Request& request : requests) {
    // Multiples of 128, so that compressed bases are whole and distinct too.
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

const std::vector<std::int32_t>& LogicalMetadata::table(int ratio) const {
  return ratio == 1 ? table1 : ratio == 4 ? table4 : table128;
}

const std::vector<std::int64_t>& LogicalMetadata::rows_of(int ratio) const {
  return ratio == 1 ? rows : ratio == 4 ? c4_rows : c128_rows;
}

LogicalMetadata logical_metadata(const StepMetadata& step, const AddressSpace& space, int window) {
  LogicalMetadata out;
  for (std::int32_t id : step.live) {
    out.table1.push_back(static_cast<std::int32_t>(space.base(id, 1)));
    out.table4.push_back(static_cast<std::int32_t>(space.base(id, 4)));
    out.table128.push_back(static_cast<std::int32_t>(space.base(id, 128)));
  }
  const std::int64_t tokens = step.num_tokens_in_step();
  const std::int64_t width = step.c128_width;
  out.swa_indices.assign(to_size(tokens * window), -1);
  out.c128_indices.assign(to_size(tokens * width), -1);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t position = step.positions[to_size(t)];
    const auto request = to_size(step.request_of[to_size(t)]);
    const std::int64_t first = out.table1[request];
    out.requests.push_back(step.live[request]);
    out.rows.push_back(first + position);
    out.c4_rows.push_back(emitted(out.table4[request], position, 4));
    out.c128_rows.push_back(emitted(out.table128[request], position, 128));
    const std::int64_t start = std::max<std::int64_t>(0, position - window + 1);
    for (std::int64_t k = start; k <= position; ++k) {
      out.swa_indices[to_size(t * window + k - start)] = static_cast<std::int32_t>(first + k);
    }
    out.swa_lens.push_back(static_cast<std::int32_t>(position + 1 - start));
    const std::int64_t entries = (position + 1) / 128;
    for (std::int64_t c = 0; c < std::min(entries, width); ++c) {
      out.c128_indices[to_size(t * width + c)] =
          static_cast<std::int32_t>(out.table128[request] + c);
    }
    out.c128_lens.push_back(static_cast<std::int32_t>(entries));
    out.c4_lens.push_back(static_cast<std::int32_t>((position + 1) / 4));
  }
  return out;
}

}  // namespace attnscope
