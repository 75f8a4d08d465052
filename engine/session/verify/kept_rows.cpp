#include "engine/session/verify/kept_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <unordered_set>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "kernels/params/row_access.h"
#include "kernels/params/row_format.h"

namespace attnscope {
namespace {

constexpr std::int64_t kBytesOfPart = 256 << 10;  // that a thread compares at least

}  // namespace

RowCheck check_rows_kept(const OpParams& params, const as_cache_access& written,
                         const CacheSpec& spec, const Shadow& shadow, const AddressSpace& space,
                         const StepMetadata& step, KeptWhen when, std::set<std::int64_t>& known,
                         const as_threads* threads) {
  RowCheck check;
  const as_cache& cache = params.cache(written.cache);
  std::unordered_set<std::int64_t> told_slots;
  RowAccess::for_each(params.data(), written,
                      [&](const RowVisit& v) { told_slots.insert(v.slot); });
  const int ratio = row_ratio(spec);
  const ShadowRows recorded(shadow, spec, cache);
  const auto table_of = [&](std::size_t row) {
    const auto first = static_cast<std::size_t>(spec.group) * step.live.size() + row;
    return step.tables.data() + first * static_cast<std::size_t>(step.columns);
  };
  enum Found : std::uint8_t { kNothing, kKept, kChanged };
  std::vector<std::int64_t> held;
  std::vector<Found> found;
  for (std::size_t r = 0; r < step.live.size(); ++r) {
    const std::int32_t* table = table_of(r);
    const std::int64_t rows = step.num_computed[r] / ratio;
    const std::int64_t base = space.base(step.live[r], ratio);
    const auto slot_of = [&](std::int64_t row) {
      return std::int64_t{table[row / spec.rows_per_block]} * spec.rows_per_block +
             row % spec.rows_per_block;
    };
    const auto look = [&](std::int64_t row) {
      const std::int64_t slot = slot_of(row);
      // Written elsewhere, or not at all: what a reader finds there is a reader's check.
      if (shadow.row_of(spec, slot) != base + row) return kNothing;
      if (told_slots.count(slot) > 0 || known.contains(slot)) return kNothing;
      return recorded.matches(slot, base + row) ? kKept : kChanged;
    };
    held.clear();  // most blocks of a window are gone
    for (std::int64_t first = 0; first < rows; first += spec.rows_per_block) {
      const std::int64_t column = first / spec.rows_per_block;
      if (column >= step.columns) break;
      if (table[column] <= AS_NULL_BLOCK) continue;
      const std::int64_t end = std::min<std::int64_t>(rows, first + spec.rows_per_block);
      for (std::int64_t row = first; row < end; ++row) held.push_back(row);
    }
    found.assign(held.size(), kNothing);
    const std::int64_t rows_of_part = 1 + kBytesOfPart / as_cache_row_bytes(&cache);
    cpu::parallel_for(threads, static_cast<std::int64_t>(held.size()), rows_of_part,
                      [&](std::int64_t begin, std::int64_t end) {
                        for (std::int64_t i = begin; i < end; ++i) {
                          const auto at = static_cast<std::size_t>(i);
                          found[at] = look(held[at]);
                        }
                      });
    for (std::size_t i = 0; i < held.size(); ++i) {
      const std::int64_t row = held[i];
      const Found here = found[i];
      if (here == kNothing) continue;
      ++check.rows;
      if (here == kKept) continue;
      const std::int64_t slot = slot_of(row);
      known.insert(slot);
      if (check.bad++ > 0) continue;
      const std::string place = slot_of_cache(spec, slot);
      const std::string content = content_of(spec, space, base + row);
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
