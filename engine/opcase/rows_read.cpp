#include "engine/opcase/rows_read.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "kernels/params/row_access.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Distinct numbers within [0, end).
std::vector<std::int64_t> tidy(std::vector<std::int64_t> numbers, std::int64_t end) {
  std::erase_if(numbers, [end](std::int64_t n) { return n < 0 || n >= end; });
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

std::vector<std::int64_t> slots_of(const void* params, const as_cache_access& access) {
  const as_cache& cache = cache_at(params, access.cache);
  std::vector<std::int64_t> slots;
  RowAccess::for_each(params, access, [&](const RowVisit& v) { slots.push_back(v.slot); });
  return tidy(std::move(slots), cache.data.shape[0] * cache.rows_per_block);
}

}  // namespace

std::vector<std::int64_t> slots_touched(const CaseOp& op, const void* params, std::size_t offset) {
  const as_cache_access* access = RowAccess::find(op.id, offset);
  return access != nullptr ? slots_of(params, *access) : std::vector<std::int64_t>{};
}

std::vector<std::int64_t> slots_to_keep(const CaseOp& op, const void* params, std::size_t offset) {
  const as_cache_access* access = RowAccess::find(op.id, offset);
  if (access == nullptr) return {};
  as_cache_access all = *access;
  all.from = 0;
  return slots_of(params, all);
}

std::vector<std::int64_t> rope_rows_read(const CaseOp& op, const void* params) {
  const std::uint32_t offset = as_rope_offset(op.id);
  const auto positions = std::ranges::find(op.taps, std::string_view("positions"),
                                           [](const as_tap_info& t) { return t.name; });
  if (offset == 0 || positions == op.taps.end()) return {};
  const as_tensor &table = rope_at(params, offset).table,
                  &at_tap = tensor_at(params, positions->offset);
  if (!present(table)) return {};
  // An entry that is pooled of a window is turned as its first token.
  const as_cache_access* pooled = nullptr;
  for (const as_cache_access& access : RowAccess::of(op.id)) {
    if (access.by == AS_BY_WINDOW) pooled = &access;
  }
  std::vector<std::int64_t> rows;
  for (std::int64_t t = 0; t < at_tap.shape[0]; ++t) {
    const std::int64_t position = *at<std::int64_t>(at_tap, t);
    if (pooled == nullptr) {
      rows.push_back(position);
    } else if (*at<std::int64_t>(tensor_at(params, pooled->only), t) >= 0) {
      rows.push_back(position + 1 - integer_at(params, pooled->window));
    }
  }
  return tidy(std::move(rows), table.shape[0]);
}

}  // namespace attnscope
