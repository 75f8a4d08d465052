#include "engine/session/history.h"

#include <algorithm>
#include <cstring>

#include "kernels/layout/records.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

std::int64_t count(const std::vector<std::int64_t>& v) {
  return static_cast<std::int64_t>(v.size());
}
std::int64_t count(const std::vector<std::int32_t>& v) {
  return static_cast<std::int64_t>(v.size());
}

}  // namespace

int row_ratio(const CacheSpec& spec) { return spec.block_tokens / spec.rows_per_block; }

History::History(const CacheLayout& layout, const AddressSpace& space, bool exact)
    : layout_(layout) {
  for (const CacheSpec& spec : layout.specs) {
    const std::int64_t rows = space.rows(row_ratio(spec));
    as_cache c{};
    c.record = spec.record;
    c.addressing = AS_LOGICAL;
    c.width = spec.width;
    const bool values = exact || spec.record == AS_RECORD_STATE;
    const std::int32_t dtype = exact ? AS_F64 : values ? AS_F32 : AS_U8;
    const std::int64_t columns = values ? spec.width : as_row_bytes(spec.record, spec.width);
    const auto bytes = static_cast<std::size_t>(rows * columns * as_dtype_size(dtype));
    // Not initialised: pages of rows never written are never touched.
    memory_.emplace_back(new std::uint8_t[bytes]);
    c.data = make_tensor(memory_.back().get(), dtype, {rows, columns});
    caches_.push_back(c);
  }
}

as_cache History::cache(const CacheSpec& spec) const {
  return caches_[static_cast<std::size_t>(&spec - layout_.specs.data())];
}

Shadow::Shadow(const CacheLayout& layout, const AddressSpace& space, std::int64_t num_blocks)
    : layout_(layout), rows_(layout, space, false) {
  for (const CacheSpec& spec : layout.specs) {
    slot_rows_.emplace_back(static_cast<std::size_t>(num_blocks * spec.rows_per_block), -1);
    steps_.emplace_back(static_cast<std::size_t>(space.rows(row_ratio(spec))), -1);
  }
}

std::size_t Shadow::index(const CacheSpec& spec) const {
  return static_cast<std::size_t>(&spec - layout_.specs.data());
}

void Shadow::record(const CacheSpec& spec, const as_cache& paged, std::int64_t slot,
                    std::int64_t row, std::int64_t step) {
  restore_row(spec, row, as_cache_row(&paged, slot), step);
  slot_rows_[index(spec)][static_cast<std::size_t>(slot)] = row;
}

void Shadow::restore_row(const CacheSpec& spec, std::int64_t row, const as_row_address& from,
                         std::int64_t step) {
  as_cache own = rows_.cache(spec);
  const as_row_address to = as_cache_row(&own, row);
  std::memcpy(to.payload, from.payload,
              static_cast<std::size_t>(as_payload_bytes(spec.record, spec.width)));
  if (from.scales != nullptr) {
    std::memcpy(to.scales, from.scales, static_cast<std::size_t>(as_scale_bytes(spec.record)));
  }
  steps_[index(spec)][static_cast<std::size_t>(row)] = static_cast<std::int32_t>(step);
}

void Shadow::rebuild_slots(const BlockManager& blocks, const std::vector<Request>& requests,
                           const AddressSpace& space) {
  const auto& owners = blocks.owners();
  for (const CacheSpec& spec : layout_.specs) {
    auto& rows = slot_rows_[index(spec)];
    std::fill(rows.begin(), rows.end(), -1);
    const int ratio = row_ratio(spec);
    for (std::size_t id = 0; id < owners.size(); ++id) {
      const BlockOwner& owner = owners[id];
      if (owner.request < 0 || owner.group != spec.group) continue;
      const std::int64_t written =
          requests[static_cast<std::size_t>(owner.request)].computed / ratio;
      const std::int64_t first = std::int64_t{owner.index} * spec.rows_per_block;
      for (std::int64_t row = 0; row < spec.rows_per_block && first + row < written; ++row) {
        rows[id * static_cast<std::size_t>(spec.rows_per_block) + static_cast<std::size_t>(row)] =
            space.base(owner.request, ratio) + first + row;
      }
    }
  }
}

std::int64_t Shadow::row_of(const CacheSpec& spec, std::int64_t slot) const {
  const auto& rows = slot_rows_[index(spec)];
  return slot >= 0 && slot < count(rows) ? rows[static_cast<std::size_t>(slot)] : -1;
}

std::int64_t Shadow::written(const CacheSpec& spec, std::int64_t row) const {
  const auto& steps = steps_[index(spec)];
  return row >= 0 && row < count(steps) ? steps[static_cast<std::size_t>(row)] : -1;
}

bool Shadow::matches(const CacheSpec& spec, const as_cache& paged, std::int64_t slot,
                     std::int64_t row) const {
  const as_row_address a = as_cache_row(&paged, slot);
  as_cache own = rows_.cache(spec);
  const as_row_address b = as_cache_row(&own, row);
  const auto payload = static_cast<std::size_t>(as_payload_bytes(spec.record, spec.width));
  const auto scales = static_cast<std::size_t>(as_scale_bytes(spec.record));
  return std::memcmp(a.payload, b.payload, payload) == 0 &&
         (a.scales == nullptr || std::memcmp(a.scales, b.scales, scales) == 0);
}

as_cache LogicalSource::cache(int layer, CacheKind kind) const {
  return history_.cache(*layout_.find(layer, kind));
}

as_tensor LogicalSource::slots(int layer, CacheKind kind) const {
  const int ratio = row_ratio(*layout_.find(layer, kind));
  const auto& rows = ratio == 1 ? step_.rows : ratio == 4 ? step_.c4_rows : step_.c128_rows;
  return make_tensor(rows.data(), {count(rows)});
}

as_tensor LogicalSource::table(int layer, CacheKind kind) const {
  const int ratio = row_ratio(*layout_.find(layer, kind));
  const auto& table = ratio == 1 ? step_.table1 : ratio == 4 ? step_.table4 : step_.table128;
  return make_tensor(table.data(), {count(table), 1});
}

as_tensor LogicalSource::swa_indices(int) const {
  return make_tensor(step_.swa_indices.data(), {count(step_.rows), window_});
}

as_tensor LogicalSource::swa_lens() const {
  return make_tensor(step_.swa_lens.data(), {count(step_.swa_lens)});
}

as_tensor LogicalSource::c128_indices() const {
  return make_tensor(step_.c128_indices.data(), {count(step_.rows), width_});
}

as_tensor LogicalSource::c128_lens() const {
  return make_tensor(step_.c128_lens.data(), {count(step_.c128_lens)});
}

as_tensor LogicalSource::c4_lens() const {
  return make_tensor(step_.c4_lens.data(), {count(step_.c4_lens)});
}

}  // namespace attnscope
