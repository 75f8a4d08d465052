#include "engine/opcase/case_trace.h"

#include <algorithm>

#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// The slots that say which rows a tap's cache got.
const StoredTensor* slots_of(const OpCase& done, const as_tap_info& tap) {
  for (const as_tap_info& other : done.op.taps) {
    if (other.offset != tap.mask_offset) continue;
    const auto it = done.tensors.find(other.name);
    if (it != done.tensors.end()) return &it->second;
  }
  return nullptr;
}

RowsCopy rows_at_slots(const OpCase& done, const as_tap_info& tap, const StoredCache& cache) {
  RowsCopy rows;
  rows.name = tap.name;
  rows.record = cache.record;
  rows.width = cache.width;
  rows.row_bytes = cache.row_bytes();
  rows.rows_per_block = cache.rows_per_block;
  const StoredTensor* stored = slots_of(done, tap);
  if (stored == nullptr || stored->dtype != AS_I64) return rows;
  const as_tensor slots = stored_view(*stored);
  for (std::int64_t t = 0; t < as_tensor_numel(&slots); ++t) {
    const std::int64_t slot = *at<std::int64_t>(slots, t);
    const auto it = std::ranges::lower_bound(cache.slots, slot);
    if (slot < 0 || it == cache.slots.end() || *it != slot) continue;
    const std::uint8_t* row = cache.rows.data() + (it - cache.slots.begin()) * rows.row_bytes;
    rows.tokens.push_back(static_cast<std::int32_t>(t));
    rows.slots.push_back(slot);
    rows.bytes.insert(rows.bytes.end(), row, row + rows.row_bytes);
  }
  return rows;
}

}  // namespace

OpTrace trace_of_case(const OpCase& done, const std::string& lane) {
  OpTrace trace;
  trace.place = {0, -1, static_cast<as_op_id>(done.op.id)};
  trace.lane = lane;
  for (const as_tap_info& tap : done.op.taps) {
    const bool output = tap.direction == AS_TAP_OUT;
    if (tap.kind == AS_TAP_CACHE) {
      const auto it = done.caches.find(tap.name);
      if (output && it != done.caches.end()) {
        trace.rows.push_back(rows_at_slots(done, tap, it->second));
      }
      continue;
    }
    const auto it = done.tensors.find(tap.name);
    if (it == done.tensors.end() || it->second.bytes.empty()) continue;
    TapCopy copy;
    copy.name = tap.name;
    copy.axes = tap.axes;
    copy.rule = tap.rule;
    copy.output = output;
    copy.value = stored_view(it->second);
    trace.taps.push_back(std::move(copy));
  }
  return trace;
}

}  // namespace attnscope
