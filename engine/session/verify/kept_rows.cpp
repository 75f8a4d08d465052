#include "engine/session/verify/kept_rows.h"

#include <fmt/format.h>

#include <unordered_set>

#include "kernels/params/row_access.h"

namespace attnscope {

RowCheck check_rows_kept(const OpParams& params, const as_cache_access& written,
                         const CacheSpec& spec, const Shadow& shadow, const AddressSpace& space,
                         const StepMetadata& step, KeptWhen when, std::set<std::int64_t>& known) {
  RowCheck check;
  const as_cache& cache = params.cache(written.cache);
  std::unordered_set<std::int64_t> told_slots;
  RowAccess::for_each(params.data(), written,
                      [&](const RowVisit& v) { told_slots.insert(v.slot); });
  const int ratio = row_ratio(spec);
  const auto table_of = [&](std::size_t row) {
    const auto first = static_cast<std::size_t>(spec.group) * step.live.size() + row;
    return step.tables.data() + first * static_cast<std::size_t>(step.columns);
  };
  for (std::size_t r = 0; r < step.live.size(); ++r) {
    const std::int32_t* table = table_of(r);
    const std::int64_t rows = step.num_computed[r] / ratio;
    const std::int64_t base = space.base(step.live[r], ratio);
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t column = row / spec.rows_per_block;
      if (column >= step.columns || table[column] <= AS_NULL_BLOCK) continue;
      const std::int64_t slot =
          std::int64_t{table[column]} * spec.rows_per_block + row % spec.rows_per_block;
      // Written elsewhere, or not at all: what a reader finds there is a reader's check.
      if (shadow.row_of(spec, slot) != base + row) continue;
      if (told_slots.count(slot) > 0 || known.contains(slot)) continue;
      ++check.rows;
      if (shadow.matches(spec, cache, slot, base + row)) continue;
      known.insert(slot);
      if (check.bad++ > 0) continue;
      const std::string place = fmt::format("slot {} (block {}, row {}) of the {} cache", slot,
                                            table[column], row % spec.rows_per_block, spec.name);
      const std::string content =
          fmt::format("{} {} of request {}", ratio == 1 ? "position" : "entry", row, step.live[r]);
      const std::int64_t last = shadow.written(spec, base + row);
      check.note = when == KeptWhen::kAfter
                       ? fmt::format("overwrites {}, which holds {}, written in step {}", place,
                                     content, last)
                       : fmt::format(
                             "{} no longer holds what was written for {} in step {}: it changed "
                             "since, while no op wrote to this cache",
                             place, content, last);
    }
  }
  return check;
}

}  // namespace attnscope
