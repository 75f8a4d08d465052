#include "app/reports/recorded_cache.h"

#include <fmt/format.h>

#include <cstring>

#include "app/views/op_order.h"
#include "engine/family/family.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
const CacheSpec* cache_of_tap(const SessionInfo& info, const Place& place, const std::string& tap) {
  return info.layout.of_tap(layer_index(info, place.layer), place.op, tap);
}

Result<RecordedCache> RecordedCache::read(const Capture& capture, const CacheSpec& spec, int layer,
                                          std::int64_t step) {
  RecordedCache cache(spec);
  cache.blocks_ = capture.index().num_blocks;
  // Pages that nobody touches cost nothing.
  cache.pages_.reset(static_cast<std::uint8_t*>(std::calloc(
      static_cast<std::size_t>(cache.blocks_) + 1, static_cast<std::size_t>(spec.page_bytes))));
  if (!cache.pages_) return Error{AS_NO_ENVIRONMENT, "a capture's cache: out of memory", {}};
  // The null block as the engine keeps it.
  std::memset(cache.pages_.get(), 0xff, static_cast<std::size_t>(spec.page_bytes));
  const CacheWriter writer =
      writer_of(spec.id, model_graph(capture.info()->config)->layer(spec.layer).ops());
  for (const auto& summary : capture.summaries()) {
    if (summary->step > step) break;
    auto trace = capture.trace(summary->step);
    if (!trace) return trace.error();
    if (!*trace) continue;
    const OpTrace* op = (*trace)->find(layer, writer.op);
    if (op != nullptr) cache.put(**trace, *op, writer.tap);
  }
  return cache;
}

as_cache RecordedCache::cache() const {
  return spec_.cache(make_tensor(pages_.get(), AS_U8, {blocks_, spec_.page_bytes}));
}

bool RecordedCache::knows(std::int64_t slot) const {
  return slot < spec_.rows_per_block || known_.contains(slot);
}

void RecordedCache::put(const StepTrace& trace, const OpTrace& writer, const char* tap) {
  // What a block held before somebody took it is gone.
  for (const std::int32_t block : trace.fresh) {
    for (int row = 0; row < spec_.rows_per_block; ++row) {
      known_.erase(std::int64_t{block} * spec_.rows_per_block + row);
    }
  }
  const RowsCopy* rows = writer.cache_rows(tap);
  if (rows == nullptr || rows->record != spec_.record || rows->width != spec_.width) return;
  const as_cache to = cache();
  const auto row_bytes = static_cast<std::size_t>(spec_.row_bytes());
  if (rows->bytes.size() != rows->slots.size() * row_bytes) {
    for (const std::int64_t slot : rows->slots) known_.erase(slot);  // written, by values not kept
    return;
  }
  const std::uint8_t* from = rows->bytes.data();
  for (const std::int64_t slot : rows->slots) {
    if (slot >= 0 && slot < blocks_ * spec_.rows_per_block) {
      as_row_put(&to, slot, from);
      known_.insert(slot);
    }
    from += row_bytes;
  }
}

}  // namespace attnscope
