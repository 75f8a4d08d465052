#include "engine/session/step/history.h"

#include <algorithm>
#include <cstring>

#include "engine/model/numbers.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

constexpr std::size_t kAligned = 64;           // bytes: a line of the processor's cache
constexpr std::int64_t kWorthIt = 256 * 1024;  // bytes; what is less waits for more

}  // namespace

int row_ratio(const CacheSpec& spec) { return spec.tokens_per_row; }

History::History(const CacheLayout& layout, const AddressSpace& space, bool exact)
    : layout_(layout), space_(space) {
  std::size_t bytes = 0;
  std::vector<std::size_t> offsets;
  for (const CacheSpec& spec : layout.specs) {
    const std::int64_t rows = space.rows(row_ratio(spec));
    const bool values = exact || as_row_is_values(spec.record) != 0;
    const std::int32_t dtype = exact ? AS_F64 : values ? AS_F32 : AS_U8;
    const std::int64_t columns = values ? spec.width : spec.row_bytes();
    caches_.push_back(spec.cache(make_tensor(nullptr, dtype, {rows, columns}), AS_LOGICAL));
    offsets.push_back(bytes);
    const auto taken = static_cast<std::size_t>(rows * columns * as_dtype_size(dtype));
    bytes += (taken + kAligned - 1) / kAligned * kAligned;
  }
  // Pages of rows never written are never touched.
  memory_ = std::make_unique<RestingMemory>(bytes);
  for (std::size_t i = 0; i < caches_.size(); ++i) {
    caches_[i].data.data = memory_->data() + offsets[i];
  }
}

void History::rest_before(std::int32_t request, std::int64_t position, bool over) {
  for (std::size_t i = 0; i < layout_.specs.size(); ++i) {
    const CacheSpec& spec = layout_.specs[i];
    const GroupSpec& group = layout_.groups[static_cast<std::size_t>(spec.group)];
    if (group.window == 0) continue;
    const std::int64_t end = (over ? position : group.first_seen(position)) / row_ratio(spec);
    std::int64_t& begin = rested_[{request, i}];
    begin = std::min(begin, end);  // the request has been taken back
    const as_tensor& rows = caches_[i].data;
    const std::int64_t row = rows.shape[1] * as_dtype_size(rows.dtype);
    if ((end - begin) * row < kWorthIt) continue;
    const std::int64_t first = space_.base(request, row_ratio(spec));
    const auto at = static_cast<std::size_t>(static_cast<std::uint8_t*>(rows.data) -
                                             memory_->data() + (first + begin) * row);
    if (memory_->rest(at, at + static_cast<std::size_t>((end - begin) * row))) begin = end;
  }
}

as_cache History::cache(const CacheSpec& spec) const {
  return caches_[static_cast<std::size_t>(&spec - layout_.specs.data())];
}

void History::copy_row(const CacheSpec& spec, std::int64_t from, std::int64_t to) {
  if (from == to) return;
  const as_cache c = cache(spec);
  const auto bytes = static_cast<std::size_t>(c.data.shape[1] * as_dtype_size(c.data.dtype));
  auto* rows = static_cast<std::uint8_t*>(c.data.data);
  std::memcpy(rows + static_cast<std::size_t>(to) * bytes,
              rows + static_cast<std::size_t>(from) * bytes, bytes);
}

Shadow::Shadow(const CacheLayout& layout, const AddressSpace& space, std::int64_t num_blocks,
               std::int64_t first_block)
    : layout_(layout), skipped_(first_block - 1), space_(space), rows_(layout, space, false) {
  for (const CacheSpec& spec : layout.specs) {
    const auto slots = static_cast<std::size_t>(num_blocks * spec.rows_per_block);
    const auto rows = static_cast<std::size_t>(space.rows(row_ratio(spec)));
    slot_rows_.emplace_back(slots, -1);
    slot_steps_.emplace_back(slots, -1);
    steps_.emplace_back(rows, -1);
    origins_.emplace_back(rows, -1);
  }
}

std::size_t Shadow::index(const CacheSpec& spec) const {
  return static_cast<std::size_t>(&spec - layout_.specs.data());
}

std::int64_t Shadow::place(const CacheSpec& spec, std::int64_t slot) const {
  const std::int64_t rows = spec.rows_per_block, skipped = skipped_ * rows;
  const std::int64_t place = slot < rows ? slot : slot - skipped;
  const bool is_null = slot >= 0 && slot < rows;
  const bool there = is_null || (place >= rows && place < to_count(slot_rows_[index(spec)].size()));
  return there ? place : -1;
}

void Shadow::record(const CacheSpec& spec, const as_cache& paged, std::int64_t slot,
                    std::int64_t row, std::int64_t step) {
  put_record(spec, row, paged, slot, step, row);
  const auto at = static_cast<std::size_t>(place(spec, slot));
  slot_rows_[index(spec)][at] = row;
  slot_steps_[index(spec)][at] = static_cast<std::int32_t>(step);
}

void Shadow::put_record(const CacheSpec& spec, std::int64_t row, const void* record,
                        std::int64_t step, std::int64_t origin) {
  const as_cache own = rows_.cache(spec);
  as_row_put(&own, row, record);
  steps_[index(spec)][static_cast<std::size_t>(row)] = static_cast<std::int32_t>(step);
  origins_[index(spec)][static_cast<std::size_t>(row)] = origin;
}

void Shadow::put_record(const CacheSpec& spec, std::int64_t row, const as_cache& from,
                        std::int64_t slot, std::int64_t step, std::int64_t origin) {
  const as_cache own = rows_.cache(spec);
  as_row_copy(&from, slot, &own, row);
  steps_[index(spec)][static_cast<std::size_t>(row)] = static_cast<std::int32_t>(step);
  origins_[index(spec)][static_cast<std::size_t>(row)] = origin;
}

void Shadow::copied(const CacheSpec& spec, std::int64_t from, std::int64_t to) {
  const auto source = static_cast<std::size_t>(place(spec, from));
  const auto target = static_cast<std::size_t>(place(spec, to));
  slot_rows_[index(spec)][target] = slot_rows_[index(spec)][source];
  slot_steps_[index(spec)][target] = slot_steps_[index(spec)][source];
}

std::int64_t Shadow::take_over(const CacheSpec& spec, const as_cache& paged, std::int64_t slot,
                               std::int64_t row) {
  const std::int64_t from = row_of(spec, slot);
  if (from < 0) return -1;
  const std::int32_t step = slot_steps_[index(spec)][static_cast<std::size_t>(place(spec, slot))];
  if (written(spec, from) == step && origin(spec, from) == from) {
    if (from != row) put_record(spec, row, rows_.cache(spec), from, step, from);
  } else {
    // The donor has computed this row again elsewhere: of the older write the page is left.
    put_record(spec, row, paged, slot, step, from);
  }
  return from;
}

void Shadow::forget_block(std::int32_t block) {
  for (std::size_t spec = 0; spec < layout_.specs.size(); ++spec) {
    const std::int64_t rows = layout_.specs[spec].rows_per_block;
    const std::ptrdiff_t first = first_place(layout_.specs[spec], block);
    std::fill_n(slot_rows_[spec].begin() + first, rows, -1);
    std::fill_n(slot_steps_[spec].begin() + first, rows, -1);
  }
}

SlotMarks Shadow::marks(std::int32_t group, std::int32_t block) const {
  SlotMarks marks;
  for (const int s : layout_.groups[static_cast<std::size_t>(group)].specs) {
    const auto spec = static_cast<std::size_t>(s);
    const std::int64_t rows = layout_.specs[spec].rows_per_block;
    const std::ptrdiff_t place = first_place(layout_.specs[spec], block);
    const auto first = slot_rows_[spec].begin() + place;
    marks.rows.insert(marks.rows.end(), first, first + rows);
    const auto step = slot_steps_[spec].begin() + place;
    marks.steps.insert(marks.steps.end(), step, step + rows);
  }
  return marks;
}

void Shadow::restore_marks(std::int32_t group, std::int32_t block, const SlotMarks& marks) {
  std::ptrdiff_t at = 0;
  for (const int s : layout_.groups[static_cast<std::size_t>(group)].specs) {
    const auto spec = static_cast<std::size_t>(s);
    const std::ptrdiff_t rows = layout_.specs[spec].rows_per_block;
    const std::ptrdiff_t first = first_place(layout_.specs[spec], block);
    std::copy_n(marks.rows.begin() + at, rows, slot_rows_[spec].begin() + first);
    std::copy_n(marks.steps.begin() + at, rows, slot_steps_[spec].begin() + first);
    at += rows;
  }
}

void Shadow::restore_row(const CacheSpec& spec, const as_cache& paged, std::int64_t slot,
                         std::int64_t row, std::int64_t kept) {
  const std::int64_t from = row_of(spec, slot);
  if (from < 0) return;
  const std::int32_t step = slot_steps_[index(spec)][static_cast<std::size_t>(place(spec, slot))];
  if (origin(spec, row) == from && written(spec, row) == step) return;
  put_record(spec, row, paged, kept >= 0 ? kept : slot, step, from);
}

std::int64_t Shadow::row_of(const CacheSpec& spec, std::int64_t slot) const {
  const std::int64_t at = place(spec, slot);
  return at < 0 ? -1 : slot_rows_[index(spec)][static_cast<std::size_t>(at)];
}

std::int64_t Shadow::row_of(const CacheSpec& spec, std::int64_t slot, std::int32_t request) const {
  const std::int64_t from = row_of(spec, slot);
  if (from < 0) return -1;
  const int ratio = row_ratio(spec);
  const std::int64_t row =
      space_.base(request, ratio) + from - space_.base(space_.request_of(from, ratio), ratio);
  return row < space_.base(request + 1, ratio) && holds(spec, slot, row) ? row : -1;
}

bool Shadow::holds(const CacheSpec& spec, std::int64_t slot, std::int64_t row) const {
  const std::int64_t from = row_of(spec, slot);
  return from >= 0 && origin(spec, row) == from;
}

std::int64_t Shadow::written(const CacheSpec& spec, std::int64_t row) const {
  const auto& steps = steps_[index(spec)];
  return row >= 0 && row < to_count(steps.size()) ? steps[static_cast<std::size_t>(row)] : -1;
}

bool Shadow::matches(const CacheSpec& spec, const as_cache& paged, std::int64_t slot,
                     std::int64_t row) const {
  const as_cache own = rows_.cache(spec);
  const auto* record = static_cast<const std::uint8_t*>(own.data.data) +
                       row * own.data.stride[0] * as_dtype_size(own.data.dtype);
  return as_row_equals(&paged, slot, record) != 0;
}

as_cache LogicalSource::cache(int layer, CacheId id, int peer) const {
  return history_.cache(*layout_.find(layer, id, peer));
}

as_tensor LogicalSource::slots(int layer, CacheId id) const {
  const CacheSpec& spec = *layout_.find(layer, id);
  const auto& rows = step_.rows_of(row_ratio(spec));
  if (spec.retention.kind != GroupKind::kFirst) {
    return make_tensor(rows.data(), {to_count(rows.size())});
  }
  // A request's rows begin at the last beginning that is not behind them.
  std::vector<std::int32_t> begins = step_.table(row_ratio(spec));
  std::ranges::sort(begins);
  first_rows_ = rows;
  for (std::int64_t& row : first_rows_) {
    if (row < 0) continue;
    const auto behind = std::ranges::upper_bound(begins, row);
    if (behind != begins.begin() && row - *std::prev(behind) >= spec.retention.window) row = -1;
  }
  return make_tensor(first_rows_.data(), {to_count(first_rows_.size())});
}

as_tensor LogicalSource::table(int layer, CacheId id) const {
  const auto& table = step_.table(row_ratio(*layout_.find(layer, id)));
  return make_tensor(table.data(), {to_count(table.size()), 1});
}

as_tensor LogicalSource::list(int, int own) const {
  return step_.own[static_cast<std::size_t>(own)].tensor(to_count(step_.requests.size()),
                                                         list_columns_);
}

std::int32_t LogicalSource::chunk(int layer, CacheId id) const {
  const GroupSpec& kept = layout_.find(layer, id)->retention;
  return kept.kind == GroupKind::kChunked ? kept.window : 0;
}

}  // namespace attnscope
