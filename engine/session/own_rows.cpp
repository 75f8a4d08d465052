#include "engine/session/own_rows.h"

#include <cstring>

#include "kernels/layout/records.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

bool writes_cache(const as_tap_info& tap) {
  return tap.direction == AS_TAP_OUT && tap.kind == AS_TAP_CACHE;
}

}  // namespace

void OwnRows::replace(OpParams& params) {
  const as_op_info& info = params.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (!writes_cache(tap)) continue;
    as_tensor& told = params.tensor(tap.mask_offset);
    const std::int64_t tokens = told.shape[0];
    slots_.clear();
    for (std::int64_t t = 0; t < tokens; ++t) {
      slots_.push_back(*at<std::int64_t>(told, t) >= 0 ? t : -1);
    }
    told = make_tensor(slots_.data(), {tokens});
    as_cache& cache = params.cache(tap.offset);
    cache.addressing = AS_LOGICAL;
    cache.rows_per_block = 0;
    cache.data = cache.record == AS_RECORD_STATE
                     ? memory_[i].make(AS_F32, {tokens, cache.width})
                     : memory_[i].make(AS_U8, {tokens, as_row_bytes(cache.record, cache.width)});
    rows_[i] = cache.data;
  }
}

void OwnRows::put(const OpParams& engine) const {
  const as_op_info& info = engine.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (!writes_cache(tap)) continue;
    const as_cache& cache = engine.cache(tap.offset);
    const as_tensor& told = engine.tensor(tap.mask_offset);
    const auto payload = static_cast<std::size_t>(as_payload_bytes(cache.record, cache.width));
    const auto scales = static_cast<std::size_t>(as_scale_bytes(cache.record));
    for (std::int64_t t = 0; t < told.shape[0]; ++t) {
      const std::int64_t slot = *at<std::int64_t>(told, t);
      if (slot < 0 || slot >= cache.data.shape[0] * cache.rows_per_block) continue;
      const auto* row = static_cast<const std::uint8_t*>(rows_[i].data) +
                        static_cast<std::size_t>(t) * (payload + scales);
      const as_row_address to = as_cache_row(&cache, slot);
      std::memcpy(to.payload, row, payload);
      if (scales > 0) std::memcpy(to.scales, row + payload, scales);
    }
  }
}

}  // namespace attnscope
