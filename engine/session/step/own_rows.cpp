#include "engine/session/step/own_rows.h"

#include <cstring>

#include "engine/model/numbers.h"
#include "kernels/params/row_access.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
std::vector<std::int64_t> rows_by_token(const void* params, const as_cache_access& access) {
  const auto& told =
      *reinterpret_cast<const as_tensor*>(static_cast<const char*>(params) + access.rows);
  std::vector<std::int64_t> rows(to_size(told.shape[0]), -1);
  RowAccess::for_each(params, access, [&](const RowVisit& v) { rows[to_size(v.token)] = v.token; });
  return rows;
}

void make_logical(as_cache& cache, std::int64_t rows, std::int32_t values, Scratch& memory) {
  const bool numbers = as_row_is_values(cache.record) != 0;
  const std::int64_t columns = numbers ? cache.width : as_cache_row_bytes(&cache);
  const std::int32_t heads = cache.data.reserved;
  cache.addressing = AS_LOGICAL;
  cache.rows_per_block = 0;
  cache.data = memory.make(numbers ? values : AS_U8, {rows, columns});
  cache.data.reserved = heads;
}

void OwnRows::replace(OpParams& params) {
  const auto accesses = RowAccess::of(params.op());
  for (std::size_t i = 0; i < accesses.size(); ++i) {
    const as_cache_access& access = accesses[i];
    if (access.direction != AS_TAP_OUT) continue;
    if (params.cache(access.cache).record == AS_RECORD_NONE) continue;
    slots_[i] = rows_by_token(params.data(), access);
    const std::int64_t tokens = to_count(slots_[i].size());
    params.tensor(access.rows) = make_tensor(slots_[i].data(), {tokens});
    as_cache& cache = params.cache(access.cache);
    make_logical(cache, tokens, AS_F32, memory_[i]);
    rows_[i] = cache.data;
  }
}

void OwnRows::put(const OpParams& engine) const {
  const auto accesses = RowAccess::of(engine.op());
  for (std::size_t i = 0; i < accesses.size(); ++i) {
    if (accesses[i].direction != AS_TAP_OUT) continue;
    const as_cache& cache = engine.cache(accesses[i].cache);
    if (cache.record == AS_RECORD_NONE) continue;
    const std::int64_t end = cache.data.shape[0] * cache.rows_per_block;
    const std::int64_t bytes = as_cache_row_bytes(&cache);
    RowAccess::for_each(engine.data(), accesses[i], [&](const RowVisit& v) {
      if (v.slot >= end) return;
      as_row_put(&cache, v.slot, static_cast<const std::uint8_t*>(rows_[i].data) + v.token * bytes);
    });
  }
}

}  // namespace attnscope
