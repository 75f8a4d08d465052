#include "engine/cache/cache_spec.h"

#include "kernels/params/op_table.h"

namespace attnscope {

CacheId tap_cache(std::int32_t op, std::size_t offset) {
  std::uint32_t count = 0;
  const as_cache_access* accesses = as_cache_accesses(op, &count);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (accesses[i].cache == offset) return {accesses[i].role, accesses[i].nth};
  }
  return {};
}

CacheId tap_cache(std::int32_t op, std::string_view tap) {
  const as_op_info* info = as_op_find(op);
  for (std::uint32_t i = 0; info != nullptr && i < info->num_taps; ++i) {
    if (info->taps[i].kind == AS_TAP_CACHE && tap == info->taps[i].name) {
      return tap_cache(op, info->taps[i].offset);
    }
  }
  return {};
}

CacheWriter writer_of(CacheId id, std::span<const as_op_id> ops) {
  for (const as_op_id op : ops) {
    const as_op_info& info = *as_op_find(op);
    for (std::uint32_t i = 0; i < info.num_taps; ++i) {
      const as_tap_info& tap = info.taps[i];
      if (tap.kind != AS_TAP_CACHE || tap.direction != AS_TAP_OUT) continue;
      if (tap_cache(op, tap.offset) == id) return {op, tap.name};
    }
  }
  return {};
}

CacheId listed_cache(std::int32_t op, std::string_view tap) {
  const as_op_info* info = as_op_find(op);
  std::uint32_t count = 0;
  const as_cache_access* accesses = as_cache_accesses(op, &count);
  for (std::uint32_t i = 0; info != nullptr && i < info->num_taps; ++i) {
    if (tap != info->taps[i].name) continue;
    for (std::uint32_t k = 0; k < count; ++k) {
      if (accesses[k].rows == info->taps[i].offset) return {accesses[k].role, accesses[k].nth};
    }
  }
  return {};
}

}  // namespace attnscope
