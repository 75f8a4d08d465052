#include "engine/session/verify/prefix_reuse.h"

namespace attnscope {

void PrefixReuse::apply(const CacheSpec& spec, const as_cache& paged, bool this_step,
                        Shadow& shadow, const std::vector<History*>& histories) const {
  const std::int64_t rows = spec.rows_per_block;
  for (const SharedBlock& b : blocks_) {
    if (b.group != spec.group || b.this_step != this_step) continue;
    const std::int64_t first = space_.base(b.request, row_ratio(spec)) + b.index * rows;
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t from = shadow.take_over(spec, paged, b.block * rows + r, first + r);
      if (from < 0) continue;
      for (History* history : histories) {
        if (history != nullptr) history->copy_row(spec, from, first + r);
      }
    }
  }
}

void PrefixReuse::follow(const CacheSpec& spec, const Shadow& shadow, History& history) const {
  const std::int64_t rows = spec.rows_per_block;
  for (const SharedBlock& b : blocks_) {
    if (b.group != spec.group || !b.this_step) continue;
    const std::int64_t first = space_.base(b.request, row_ratio(spec)) + b.index * rows;
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t from = shadow.row_of(spec, b.block * rows + r);
      if (from >= 0) history.copy_row(spec, from, first + r);
    }
  }
}

}  // namespace attnscope
