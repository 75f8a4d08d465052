#include "engine/session/own_rows.h"

#include <cstring>

#include "engine/model/numbers.h"
#include "kernels/layout/records.h"
#include "kernels/params/row_access.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
std::vector<std::int64_t> rows_by_token(const void* params, const as_cache_access& access) {
  const auto& told =
      *reinterpret_cast<const as_tensor*>(static_cast<const char*>(params) + access.rows);
  std::vector<std::int64_t> rows(to_size(told.shape[0]), -1);
  RowAccess::for_each(params, access, [&](const RowVisit& v) { rows[to_size(v.token)] = v.token; });
  return rows;
}

void OwnRows::replace(OpParams& params) {
  const auto accesses = RowAccess::of(params.op());
  for (std::size_t i = 0; i < accesses.size(); ++i) {
    const as_cache_access& access = accesses[i];
    if (access.direction != AS_TAP_OUT) continue;
    slots_ = rows_by_token(params.data(), access);
    const std::int64_t tokens = to_count(slots_.size());
    params.tensor(access.rows) = make_tensor(slots_.data(), {tokens});
    as_cache& cache = params.cache(access.cache);
    cache.addressing = AS_LOGICAL;
    cache.rows_per_block = 0;
    cache.data = cache.record == AS_RECORD_STATE
                     ? memory_[i].make(AS_F32, {tokens, cache.width})
                     : memory_[i].make(AS_U8, {tokens, as_row_bytes(cache.record, cache.width)});
    rows_[i] = cache.data;
  }
}

void OwnRows::put(const OpParams& engine) const {
  const auto accesses = RowAccess::of(engine.op());
  for (std::size_t i = 0; i < accesses.size(); ++i) {
    if (accesses[i].direction != AS_TAP_OUT) continue;
    const as_cache& cache = engine.cache(accesses[i].cache);
    const std::int64_t end = cache.data.shape[0] * cache.rows_per_block;
    const auto payload = to_size(as_payload_bytes(cache.record, cache.width));
    const auto scales = to_size(as_scale_bytes(cache.record));
    RowAccess::for_each(engine.data(), accesses[i], [&](const RowVisit& v) {
      if (v.slot >= end) return;
      const auto* row =
          static_cast<const std::uint8_t*>(rows_[i].data) + to_size(v.token) * (payload + scales);
      const as_row_address to = as_cache_row(&cache, v.slot);
      std::memcpy(to.payload, row, payload);
      if (scales > 0) std::memcpy(to.scales, row + payload, scales);
    });
  }
}

}  // namespace attnscope
